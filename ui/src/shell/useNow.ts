import { useEffect, useState } from "react";

/** Seconds since 1970, told anew every `ms`. */
export function useNow(ms: number): number {
	const [now, setNow] = useState(() => Date.now() / 1000);
	useEffect(() => {
		const timer = setInterval(() => setNow(Date.now() / 1000), ms);
		return () => clearInterval(timer);
	}, [ms]);
	return now;
}
