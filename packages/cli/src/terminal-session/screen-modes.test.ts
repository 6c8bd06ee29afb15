import { expect, test } from "vitest";
import { ScreenModes } from "./screen-modes.ts";

const ESC = "\u001b";
const after = (...chunks: string[]) => {
  const modes = new ScreenModes();
  for (const chunk of chunks) modes.watch(Buffer.from(chunk));
  return modes.undo();
};

test("a terminal that nothing was done to only gets its colours back", () => {
  expect(after("hello\r\n", `${ESC}[31mred`)).toBe(`${ESC}[0m`);
});

test("the screen, the cursor and the mouse are given back", () => {
  expect(after(`${ESC}[?1049h${ESC}[?25l${ESC}[?1000;1006h${ESC}=`)).toBe(
    `${ESC}[>4m${ESC}[?1049l${ESC}[?25h${ESC}[?1000l${ESC}[?1006l${ESC}>${ESC}[0m`,
  );
});

test("a mode that the program has undone itself is left alone", () => {
  expect(after(`${ESC}[?1049h${ESC}[?2004h`, "text", `${ESC}[?2004l${ESC}[?1049l`)).toBe(`${ESC}[0m`);
});

test("sequences count however they are cut", () => {
  const text = `${ESC}[?2004h`;
  for (let at = 1; at < text.length; at++) {
    expect(after(text.slice(0, at), text.slice(at))).toBe(`${ESC}[?2004l${ESC}[0m`);
  }
});

test("modes that do no harm are not touched", () => {
  expect(after(`${ESC}[?12h${ESC}[?9999h${ESC}[4h`)).toBe(`${ESC}[0m`);
});
