/** Reads the event stream over a real connection. */
import { type IncomingMessage, request } from "node:http";
import type { AddressInfo } from "node:net";
import type { Event } from "@vivarium/contract/api";
import { type Control, eventually } from "./control.ts";

export interface Frame {
  id?: string;
  event?: string;
  data?: Event;
}

export class Reader {
  readonly response: IncomingMessage;
  text = "";
  hasEnded = false;
  /** The end of the text, which is no whole block yet. */
  #rest = "";
  readonly #frames: Frame[] = [];

  constructor(response: IncomingMessage) {
    this.response = response;
    response.setEncoding("utf8");
    response.on("data", (chunk: string) => {
      this.text += chunk;
      // Each block is read once: some tests get many megabytes, and look at them again and again.
      const blocks = (this.#rest + chunk).split("\n\n");
      this.#rest = blocks.pop() ?? "";
      this.#frames.push(...blocks.map(toFrame).filter(({ data }) => data !== undefined));
    });
    response.on("error", () => undefined);
    response.on("close", () => {
      this.hasEnded = true;
    });
  }

  /** The frames with data: no comments, and no frames that only have an id to resume from. */
  get frames(): Frame[] {
    return [...this.#frames];
  }

  get events(): Event[] {
    return this.frames.flatMap(({ data }) => (data ? [data] : []));
  }

  get types(): string[] {
    return this.events.map(({ type }) => type);
  }

  /** Reads until at least `count` events have come, and returns all. */
  async until(count: number): Promise<Event[]> {
    return await eventually(() => {
      if (this.events.length < count)
        throw new Error(`${this.events.length} of ${count} events: ${this.types}`);
      return this.events;
    });
  }

  async untilEnd(): Promise<void> {
    await eventually(() => {
      if (!this.hasEnded) throw new Error("the stream has not ended");
    });
  }

  close(): void {
    this.response.destroy();
  }
}

export async function openReader(
  control: Control,
  query = "",
  { key = control.key, headers = {} }: { key?: string; headers?: Record<string, string> } = {},
): Promise<Reader> {
  const { port } = control.app.server.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/v1/events${query}`;
  return await new Promise((resolve, reject) => {
    const asked = request(url, { headers: { authorization: `Bearer ${key}`, ...headers }, agent: false });
    asked.on("error", reject);
    asked.on("response", (response) => resolve(new Reader(response)));
    asked.end();
  });
}

function toFrame(block: string): Frame {
  const frame: Frame = {};
  for (const line of block.split("\n")) {
    const [field = "", ...rest] = line.split(": ");
    const value = rest.join(": ");
    if (field === "id") frame.id = value;
    if (field === "event") frame.event = value;
    if (field === "data") frame.data = JSON.parse(value) as Event;
  }
  return frame;
}
