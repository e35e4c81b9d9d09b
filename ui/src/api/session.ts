/** Who is signed in: the token, kept for this tab, or for this browser when the person asked for it. */

const KEY = "penstock.token";
const listeners = new Set<() => void>();
let current = read();

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

export function keepToken(value: string, remember: boolean): void {
	current = value;
	try {
		forgetStored();
		(remember ? localStorage : sessionStorage).setItem(KEY, value);
	} catch {
		// as above
	}
	for (const listener of listeners) listener();
}

export function forgetToken(): void {
	current = null;
	try {
		forgetStored();
	} catch {
		// as above
	}
	for (const listener of listeners) listener();
}

export function onSession(listener: () => void): () => void {
	listeners.add(listener);
	return () => listeners.delete(listener);
}

function forgetStored(): void {
	sessionStorage.removeItem(KEY);
	localStorage.removeItem(KEY);
}
