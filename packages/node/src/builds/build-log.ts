/** The log of a build for its user: the newest lines in memory, and in a file that outlives the daemon. */
import { appendFile, readFile } from "node:fs/promises";
import path from "node:path";
import { BuildLog as Lines } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import { SerialQueue } from "@vivarium/kit/serial-queue";

type Line = Lines["lines"][number];

const MOST_LINES = 1_000;
const MOST_CHARS = 500;
const MODE = 0o600;

export class BuildLog {
  readonly #file: string;
  readonly #writes = new SerialQueue();
  #lines: Line[];

  private constructor(file: string, lines: Line[]) {
    this.#file = file;
    this.#lines = lines;
  }

  /** Continues the log in a build's folder. A line that was cut off is dropped. */
  static async open(dir: string): Promise<BuildLog> {
    const file = path.join(dir, "log");
    const text = await readFile(file, "utf8").catch(() => "");
    const lines = text.split("\n").flatMap(read).slice(-MOST_LINES);
    if (text !== "") await writeDurably(file, lines.map(written).join(""), MODE);
    return new BuildLog(file, lines);
  }

  get lines(): readonly Line[] {
    return this.#lines;
  }

  /** The text is shown to a user: nothing of this host is part of it. */
  add(text: string): void {
    const line = { at: new Date().toISOString(), text: oneLine(text) };
    this.#lines = [...this.#lines, line].slice(-MOST_LINES);
    // A line that cannot be written is shown until the daemon ends.
    void this.#writes.run(() => appendFile(this.#file, written(line), { mode: MODE })).catch(() => {});
  }

  /** Resolves once everything is in the file. */
  async flush(): Promise<void> {
    await this.#writes.run(async () => {});
  }
}

/** One line in printable characters. */
export function oneLine(text: string): string {
  return text.replace(/[^\x20-\x7e\u00a0-\uffff]+/g, " ").slice(0, MOST_CHARS);
}

const written = (line: Line) => `${JSON.stringify(line)}\n`;

function read(text: string): Line[] {
  try {
    return Lines.parse({ lines: [JSON.parse(text)] }).lines;
  } catch {
    return [];
  }
}
