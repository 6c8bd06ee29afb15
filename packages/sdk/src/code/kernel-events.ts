/** Reads and validates the events that a kernel in a guest sends, one JSON object per line (kernel/serve.py). */
import { VivariumError } from "../errors.ts";
import { readLines } from "../read-lines.ts";
import type { CodeError, CodeResult, CodeResultType } from "./code-result.ts";

type Format = { type: CodeResultType; data: CodeResult["data"] };
export type KernelEvent =
  /** `absent`: no kernel listens; `missing`: kernel/ask.py is missing; `waited`: timed out before the code began. */
  | { event: "absent" | "missing" | "waited" | "ok" }
  | { event: "begin"; count: number }
  | { event: "stdout" | "stderr"; text: string }
  | { event: "result"; main: boolean; formats: Format[]; isCut: boolean }
  | { event: "end"; timedOut: boolean; error: CodeError | undefined }
  | { event: "died"; timedOut: boolean; reason: string; code: number };

/** The longest line, in bytes: the four formats of a value fit, since the kernel cuts each at 8 MiB. */
const LINE_BYTES = 48 * 1024 * 1024;
/** The formats of a value, in the order of its results. */
const TYPES: readonly CodeResultType[] = ["text/plain", "text/html", "image/png", "application/json"];

export async function* readKernelEvents(
  output: AsyncIterable<Uint8Array>,
): AsyncGenerator<KernelEvent, void, void> {
  const limit = { maxBytes: LINE_BYTES, tooLong: () => strange("a line without an end") };
  for await (const line of readLines(output, limit)) yield parseEvent(line);
}

function parseEvent(line: string): KernelEvent {
  let event: KernelEvent | undefined;
  try {
    event = toEvent(JSON.parse(line));
  } catch {
    // Not JSON.
  }
  if (event === undefined) throw strange(line);
  return event;
}

function toEvent(said: unknown): KernelEvent | undefined {
  if (!isRecord(said)) return undefined;
  const { event, text, count, main, formats, reason, code, error } = said;
  const timedOut = said.timed_out === true;
  if (event === "absent" || event === "ok") return { event };
  if ((event === "stdout" || event === "stderr") && typeof text === "string") return { event, text };
  if (event === "begin" && typeof count === "number") return { event, count };
  if (event === "result" && isRecord(formats)) {
    return { event, main: main === true, formats: toFormats(formats), isCut: said.is_cut === true };
  }
  if (event === "end") return { event, timedOut, error: toError(error) };
  if (event === "died" && typeof reason === "string" && typeof code === "number") {
    return { event, timedOut, reason, code };
  }
  return undefined;
}

function toFormats(formats: Record<string, unknown>): Format[] {
  return TYPES.filter((type) => type in formats)
    .map((type) => ({ type, data: formats[type] }))
    .filter(
      (format): format is Format => format.type === "application/json" || typeof format.data === "string",
    );
}

function toError(error: unknown): CodeError | undefined {
  if (!isRecord(error)) return undefined;
  const { name, value, traceback } = error;
  return { name: String(name), value: String(value), traceback: String(traceback) };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function strange(line: string): VivariumError {
  return new VivariumError("kernel_failed", `the kernel said what no kernel says: ${line.slice(0, 200)}`);
}
