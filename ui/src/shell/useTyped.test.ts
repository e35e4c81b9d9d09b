import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { useTyped } from "./useTyped";

beforeEach(() => {
	vi.useFakeTimers();
});
afterEach(() => {
	vi.useRealTimers();
});

test("what is typed while the address changes stays, and its blanks too", () => {
	const apply = vi.fn();
	const { result, rerender } = renderHook(({ value }) => useTyped(value, apply), {
		initialProps: { value: undefined as string | undefined },
	});
	act(() => result.current[1]("cart "));
	act(() => vi.advanceTimersByTime(1000));
	expect(apply).toHaveBeenLastCalledWith("cart");
	act(() => result.current[1]("cart p"));
	rerender({ value: "cart" });
	expect(result.current[0]).toBe("cart p");
	act(() => vi.advanceTimersByTime(1000));
	rerender({ value: "cart p" });
	rerender({ value: undefined }); // a link, or the browser's way back
	expect(result.current[0]).toBe("");
});
