/** Who is signed in: the token, kept for this tab, or for this browser when the person asked for it. */

const KEY = "penstock.token";
/** Written when somebody signs out, so that the other tabs hear of it. */
const OUT = "penstock.out";
const listeners = new Set<() => void>();

/** Somebody left, or the server takes the token no longer: then what they typed is kept for them. */
export type Reason = "left" | "expired";

let current = read();
let reason: Reason | null = null;

function read(): string | null {
	try {
		return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
	} catch {
		return null; // storage is off: the token lives as long as the page
	}
}

export function token(): string | null {
	return current;
}

/** Why nobody is signed in any more; null where nobody was. */
export function whyGone(): Reason | null {
	return reason;
}

export function keepToken(value: string, remember: boolean): void {
	store(() => {
		sessionStorage.removeItem(KEY);
		(remember ? localStorage : sessionStorage).setItem(KEY, value);
	});
	become(value, null);
}

export function forgetToken(why: Reason): void {
	const gone = current;
	store(() => {
		sessionStorage.removeItem(KEY);
		// an expired token says nothing of another one that was remembered meanwhile
		if (why === "left" || localStorage.getItem(KEY) === gone) localStorage.removeItem(KEY);
		if (why === "left") localStorage.setItem(OUT, String(Date.now()));
	});
	become(null, why);
}

export function onSession(listener: () => void): () => void {
	listeners.add(listener);
	return () => listeners.delete(listener);
}

/** What another tab did: who signs out there is out here, who is remembered there is in here. */
export function hearTab({ key, newValue }: { key: string | null; newValue: string | null }): void {
	if (key === null || (key === OUT && newValue !== null)) {
		store(() => sessionStorage.removeItem(KEY));
		if (current !== null || reason === "expired") become(null, "left"); // nothing of theirs stays behind
	} else if (key === KEY && newValue !== null && current === null) become(newValue, null);
}
globalThis.addEventListener?.("storage", hearTab as unknown as EventListener);

function become(value: string | null, why: Reason | null): void {
	current = value;
	reason = why;
	for (const listener of [...listeners]) listener();
}

function store(change: () => void): void {
	try {
		change();
	} catch {
		// storage is off, as above
	}
}
