import { SESSION_EVENTS, SESSION_STATES, TRANSITIONS } from "@vivarium/contract/api";
import { describe, expect, test } from "vitest";
import { decide, FIRST_STATE, isActive, machineIdOf } from "./state.ts";

const moves = TRANSITIONS.filter((row) => row.from !== null);

describe("the transition table", () => {
  test.each(moves)("$event takes $from to $to", (row) => {
    const from = { state: row.from ?? FIRST_STATE, incarnation: 3 };
    const move = decide(from, row.event);
    expect(move).toMatchObject({ from, state: row.to });
    expect(move?.incarnation).toBe(row.newMachine ? 4 : 3);
    expect(move?.endReason).toBe(row.endReason);
  });

  test("a pair that is not listed is refused", () => {
    for (const state of SESSION_STATES) {
      for (const event of SESSION_EVENTS) {
        const isListed = moves.some((row) => row.from === state && row.event === event);
        expect(decide({ state, incarnation: 1 }, event) !== undefined, `${state} ${event}`).toBe(isListed);
      }
    }
  });

  test("a new session is creating", () => {
    expect(FIRST_STATE).toBe("creating");
  });
});

test("a DELETE may give the shell's exit as its reason; no other event has a reason from the caller", () => {
  const live = { state: "live", incarnation: 1 } as const;
  expect(decide(live, "destroy", "shell_exit")?.endReason).toBe("shell_exit");
  expect(decide(live, "destroy")?.endReason).toBe("client_destroy");
  expect(decide(live, "last_pty_detached_destroy", "shell_exit")?.endReason).toBe("on_detach_destroy");
});

test("a session without a machine yet has the id of its first machine", () => {
  expect(machineIdOf({ id: "a".repeat(21), incarnation: 0 })).toBe(`${"a".repeat(21)}-1`);
  expect(machineIdOf({ id: "a".repeat(21), incarnation: 7 })).toBe(`${"a".repeat(21)}-7`);
});

test("creating and live sessions take a slot, others do not", () => {
  expect(SESSION_STATES.filter(isActive)).toEqual(["creating", "live"]);
});
