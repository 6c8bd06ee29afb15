/** A framed answer, of a command or a log, that a test writes step by step. */
import type { ServerResponse } from "node:http";
import { encodeFrame, FRAME } from "@vivarium/contract/guest";

export class Output {
  readonly #response: ServerResponse;
  /** Resolves when control closes the connection. */
  readonly gone: Promise<void>;

  constructor(response: ServerResponse) {
    this.#response = response;
    this.gone = new Promise((resolve) => response.once("close", resolve));
    response.writeHead(200, { "content-type": "application/octet-stream" }).flushHeaders();
  }
  stdout(data: Buffer | string): boolean {
    return this.#response.write(encodeFrame(FRAME.stdout, Buffer.from(data as string)));
  }
  stderr(data: Buffer | string): boolean {
    return this.#response.write(encodeFrame(FRAME.stderr, Buffer.from(data as string)));
  }
  drained(): Promise<void> {
    return new Promise((resolve) => this.#response.once("drain", resolve));
  }
  raw(data: Buffer): void {
    this.#response.write(data);
  }
  exit(exitCode = 0, end: Record<string, unknown> = {}): void {
    const whole = {
      exit_code: exitCode,
      timed_out: false,
      duration_us: 1500,
      stdout_truncated: false,
      stderr_truncated: false,
      ...end,
    };
    this.#response.end(encodeFrame(FRAME.exit, JSON.stringify(whole)));
  }
  /** Ends a log. */
  eof(end: Record<string, unknown> = {}): void {
    const whole = { stdout_truncated: false, stderr_truncated: false, ...end };
    this.#response.end(encodeFrame(FRAME.eof, JSON.stringify(whole)));
  }
  error(message: string): void {
    this.#response.end(encodeFrame(FRAME.error, JSON.stringify({ message })));
  }
  endWith(data: Buffer): void {
    this.#response.end(data);
  }
  /** Ends the answer properly, but without an exit frame. */
  endWithoutExit(): void {
    this.#response.end();
  }
  breakOff(): void {
    this.#response.destroy();
  }
}
