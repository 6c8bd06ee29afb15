/** Shows the progress of a copy as one line on the terminal. */
import { createReadStream } from "node:fs";
import { formatBytes } from "../print/bytes.ts";
import { plainText } from "../print/table.ts";
import type { Terminal } from "../terminal.ts";
import type { Content } from "./entry.ts";

export interface Progress {
  expect(bytes: number, files: number): void;
  moved(bytes: number): void;
  finished(files: number): void;
  /** Removes the line from the terminal. */
  end(): void;
}

export const noProgress: Progress = {
  expect: () => {},
  moved: () => {},
  finished: () => {},
  end: () => {},
};

const DRAW_EVERY_MS = 100;
const CLEAR_LINE = "\r\u001b[K";
const BAR_COLUMNS = 24;

/** A line that is redrawn at most every 100 ms. `now`: a clock in milliseconds. */
export function progressLine(
  { terminal, now }: { terminal: Terminal; now: () => number },
  label: string,
): Progress {
  const startedAt = now();
  const total = { bytes: 0, files: 0 };
  const done = { bytes: 0, files: 0 };
  let drawnAt = Number.NEGATIVE_INFINITY;
  const write = (text: string) => void terminal.write("stdout", Buffer.from(text));
  const draw = () => {
    if (now() - drawnAt < DRAW_EVERY_MS) return;
    drawnAt = now();
    const line = renderProgress({ label, done, total, elapsedMs: now() - startedAt });
    write(`${CLEAR_LINE}${line.slice(0, Math.max(terminal.size().columns - 1, 0))}`);
  };
  return {
    expect: (bytes, files) => {
      total.bytes += bytes;
      total.files += files;
      draw();
    },
    moved: (bytes) => {
      done.bytes += bytes;
      draw();
    },
    finished: (files) => {
      done.files += files;
      draw();
    },
    end: () => write(CLEAR_LINE),
  };
}

interface Amount {
  bytes: number;
  files: number;
}

export function renderProgress(state: {
  label: string;
  done: Amount;
  total: Amount;
  elapsedMs: number;
}): string {
  const { label, done, total, elapsedMs } = state;
  const share = total.bytes === 0 ? 1 : Math.min(done.bytes / total.bytes, 1);
  const filled = Math.round(share * BAR_COLUMNS);
  const bar = `${"#".repeat(filled)}${".".repeat(BAR_COLUMNS - filled)}`;
  const rate = elapsedMs === 0 ? "" : `, ${formatBytes((done.bytes / elapsedMs) * 1000)}/s`;
  const files = total.files > 1 ? `, ${done.files} of ${total.files} files` : "";
  const percent = `${Math.floor(share * 100)}%`.padStart(4);
  return `[${bar}] ${percent}  ${formatBytes(done.bytes)} of ${formatBytes(total.bytes)}${rate}${files}  ${plainText(label)}`;
}

/** Local files above this many bytes are read as counted streams; smaller ones can be read again for a retry. */
const LARGE_BYTES = 8 * 1024 * 1024;

/** Counts the bytes of a content as they are read, except of small local files. */
export function meter(content: Content, bytes: number, progress: Progress): Content {
  if ("file" in content && bytes <= LARGE_BYTES) return content;
  return counted(content, progress);
}

async function* counted(content: Content, progress: Progress): AsyncGenerator<Uint8Array> {
  const chunks = "file" in content ? createReadStream(content.file) : content;
  for await (const chunk of chunks) {
    yield chunk;
    progress.moved(chunk.byteLength);
  }
}
