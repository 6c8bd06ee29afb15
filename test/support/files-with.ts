/** Searches files of the service for texts that must be in none, or in some. */
import { spawn } from "node:child_process";
import { text as textOf } from "node:stream/consumers";

/**
 * Files in these places with those of the texts that they contain. The event loop keeps running meanwhile, so that this process
 * sees which of its kept connections the service closes.
 */
export async function filesWith(
  texts: string[],
  places: string[],
  leftOut: string[] = [],
): Promise<{ file: string; text: string }[]> {
  // Lines end with a zero byte: with other lines the holes of a disk are read, byte for byte, as one line.
  const grep = spawn("grep", ["-zraoFZf", "-", ...leftOut.map((name) => `--exclude=${name}`), ...places], {
    env: { PATH: "/usr/bin:/bin", LC_ALL: "C" },
    // Files come and go while the service runs, so grep may complain. The texts are no arguments, or they would find themselves.
    stdio: ["pipe", "pipe", "ignore"],
  });
  grep.stdin.end(texts.join("\n"));
  const parts = (await textOf(grep.stdout)).split("\0");
  const found = new Map<string, { file: string; text: string }>();
  for (let at = 0; at + 1 < parts.length; at += 2) {
    const [file = "", text = ""] = parts.slice(at, at + 2);
    found.set(`${file}\0${text}`, { file, text });
  }
  return [...found.values()];
}
