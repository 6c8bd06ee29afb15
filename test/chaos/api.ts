/** The interface as seen by a client without retries: a status, or nothing when the connection broke. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServiceFacts } from "../support/service.ts";

const LIMIT_MS = 30_000;

export interface Reply {
  /** 0: no answer, so the outcome of the request is unknown. */
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape
  body: any;
}

export class Api {
  readonly #facts: ServiceFacts;

  constructor(facts: ServiceFacts) {
    this.#facts = facts;
  }

  async call(method: string, path: string, body?: object): Promise<Reply> {
    try {
      const response = await fetch(this.#facts.url + path, {
        method,
        headers: {
          authorization: `Bearer ${this.#facts.apiKey}`,
          ...(body && { "content-type": "application/json" }),
        },
        ...(body && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(LIMIT_MS),
      });
      const text = await response.text();
      return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
    } catch {
      return { status: 0, body: undefined };
    }
  }

  sh(id: string, script: string): Promise<Reply> {
    const command = ["sh", "-c", script];
    return this.call("POST", `/v1/sessions/${id}/exec`, { command, timeout_ms: 20_000 });
  }

  /** Repeats while the service is still coming back from its last crash. */
  async deleteAll(): Promise<void> {
    for (let attempt = 0; attempt < 30; attempt++) {
      const { body } = await this.call("GET", "/v1/sessions?limit=500");
      if (body?.sessions?.length === 0) break;
      for (const { session_id } of body?.sessions ?? [])
        await this.call("DELETE", `/v1/sessions/${session_id}`);
      await sleep(500);
    }
    const kept = await this.call("GET", "/v1/checkpoints?limit=500");
    for (const { checkpoint_id } of kept.body?.checkpoints ?? [])
      await this.call("DELETE", `/v1/checkpoints/${checkpoint_id}`);
  }

  hasCrashed(point: string): boolean {
    const name = `crashed-at-${point}`;
    return ["", "control"].some((folder) => existsSync(join(this.#facts.dataDir, folder, name)));
  }
}
