import { stripVTControlCharacters } from "node:util";
import type { SessionRecord } from "@vivarium/sdk";
import { expect, test } from "vitest";
import { noPaint, paintFor } from "../print/paint.ts";
import { renderScreen } from "../print/screen.ts";
import type { Change } from "./changes.ts";
import type { Poll } from "./follow.ts";
import { drawScreen } from "./screen.ts";

const at = new Date(2027, 0, 1, 10, 0, 0);
const sessions = Array.from({ length: 40 }, (_, i): SessionRecord => {
  const time = at.toISOString();
  const times = { created_at: time, last_active_at: time };
  return { session_id: `s${i}`, state: "live", size: "small", vcpus: 1, mem_mb: 1024, ...times };
});
const changes = Array.from({ length: 30 }, (_, i): Change => {
  return { at: at.toISOString(), session_id: `s${i}`, from: "live", to: "paused", name: "n".repeat(100) };
});
const plain = { title: "here", paint: noPaint, columns: 60, rows: 20 };

test("a screen never has more lines or wider ones than the terminal", () => {
  const paint = paintFor({ terminal: { isInteractive: true }, config: { wantsColour: true } });
  for (const rows of [1, 5, 10, 20, 80]) {
    for (const history of [[], changes.slice(0, 1), changes]) {
      const lines = renderScreen({ at, sessions, changes: [] }, history, { ...plain, paint, rows });
      expect(lines.length).toBeLessThanOrEqual(rows);
      for (const line of lines) expect(stripVTControlCharacters(line).length).toBeLessThanOrEqual(60);
    }
  }
});

test("it shows how many sessions there are, the first of them, and the newest changes with their time", () => {
  const lines = renderScreen({ at, sessions, changes: [] }, changes, plain);
  expect(lines[0]).toBe("here  40 sessions, 10:00:00");
  expect(lines[2]).toMatch(/^ID +STATE/);
  expect(lines[3]).toMatch(/^s0 +live/);
  expect(lines).toContainEqual(expect.stringMatching(/^… and \d+ more: viv ls$/));
  const heading = lines.indexOf("CHANGES");
  expect(lines[heading + 1]).toMatch(/^10:00:00 {4}0s ago {2}s0 {2}live → paused {2}n+$/);
});

test("a service that does not answer is reported at the top, above the last known sessions", () => {
  const failure = { message: "nothing listens at http://h" } as Poll["failure"];
  const lines = renderScreen({ at, sessions: sessions.slice(0, 1), changes: [], failure }, [], plain);
  expect(lines[0]).toBe("here  nothing listens at http://h; trying again");
  expect(lines[3]).toMatch(/^s0/);
});

test("the human's own screen comes back at the end, also after a failure, with the changes on it", async () => {
  let written = "";
  const terminal = {
    isInteractive: true,
    size: () => ({ columns: 60, rows: 20 }),
    canAsk: false,
    ask: async () => "",
    askHidden: async () => "",
    out: (line: string) => {
      written += `${line}\n`;
    },
    note: () => {},
    write: async (_stream: "stdout" | "stderr", data: Uint8Array) => {
      written += Buffer.from(data).toString();
    },
  };
  async function* polls(): AsyncGenerator<Poll> {
    yield { at, sessions, changes: changes.slice(0, 1) };
  }
  await drawScreen({ terminal, paint: noPaint }, polls(), "here");
  expect(written.startsWith("\u001b[?1049h\u001b[?25l")).toBe(true);
  expect(written.split("\u001b[?25h\u001b[?1049l")[1]).toBe(
    `10:00:00  s0  live → paused  ${"n".repeat(100)}\n`,
  );

  written = "";
  // biome-ignore lint/correctness/useYield: it fails before it has anything to show
  async function* failing(): AsyncGenerator<Poll> {
    throw new Error("refused");
  }
  await expect(drawScreen({ terminal, paint: noPaint }, failing(), "here")).rejects.toThrow("refused");
  expect(written.endsWith("\u001b[?25h\u001b[?1049l")).toBe(true);
});
