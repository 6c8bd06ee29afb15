/** Assembles the result of a run from the kernel's events. */
import { LIMITS } from "@vivarium/contract/api/limits";
import type { CodeExecution, CodeResult } from "./code-result.ts";
import type { KernelEvent } from "./kernel-events.ts";

/** Characters of the results of one run that are kept. Results beyond it are only passed to `onResult`. */
const RESULTS_CHARS = 64 * 1024 * 1024;
/** Characters that a result counts in addition to its data. */
const RESULT_CHARS = 512;

/** Callbacks while the code runs. A pending promise holds back output, and blocks the code once buffers are full. */
export interface Listeners {
  onStdout?: (text: string) => void | Promise<void>;
  onStderr?: (text: string) => void | Promise<void>;
  onResult?: (result: CodeResult) => void | Promise<void>;
}

export class RunCollector {
  readonly execution: CodeExecution = {
    results: [],
    stdout: "",
    stderr: "",
    execution_count: 0,
    timed_out: false,
    duration_ms: 0,
  };
  readonly #listeners: Listeners;
  readonly #startedAt = performance.now();
  #values = 0;
  #resultsChars = 0;

  constructor(listeners: Listeners) {
    this.#listeners = listeners;
  }

  async take(event: KernelEvent): Promise<void> {
    switch (event.event) {
      case "begin":
        this.execution.execution_count = event.count;
        return;
      case "stdout":
      case "stderr":
        return await this.#takeText(event.event, event.text);
      case "result":
        return await this.#takeResult(event);
      case "end":
        this.execution.timed_out = event.timedOut;
        this.execution.duration_ms = Math.round(performance.now() - this.#startedAt);
        if (event.error !== undefined) this.execution.error = event.error;
        return;
    }
  }

  async #takeText(stream: "stdout" | "stderr", text: string): Promise<void> {
    const left = LIMITS.execOutputBytes - this.execution[stream].length;
    this.execution[stream] += text.slice(0, left);
    if (text.length > left) this.execution.truncated = true;
    await (stream === "stdout" ? this.#listeners.onStdout?.(text) : this.#listeners.onStderr?.(text));
  }

  async #takeResult(result: Extract<KernelEvent, { event: "result" }>): Promise<void> {
    const { main, formats, isCut } = result;
    const value = this.#values++;
    if (isCut) this.execution.truncated = true;
    for (const format of formats) {
      const one = { ...format, value, main } as CodeResult;
      const text = typeof format.data === "string" ? format.data : JSON.stringify(format.data);
      this.#resultsChars += RESULT_CHARS + text.length;
      if (this.#resultsChars <= RESULTS_CHARS) this.execution.results.push(one);
      else this.execution.truncated = true;
      await this.#listeners.onResult?.(one);
    }
  }
}
