/** Plain requests to the running service, for what the SDK would hide: statuses, headers, raw bytes. */
import { Client } from "@vivarium/sdk";
import { inject } from "vitest";

export const service = inject("service");

export const client = new Client({ url: service.url, apiKey: service.apiKey, retries: 0 });

export interface Answer {
  status: number;
  headers: Headers;
  /** Parsed JSON, or undefined for an empty body. */
  body: Record<string, unknown>;
}

export interface Ask {
  method?: string;
  body?: unknown;
  /** Sent as it is, instead of `body`. */
  raw?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  /** Authorization header; null: none. */
  authorization?: string | null;
}

export async function ask(path: string, options: Ask = {}): Promise<Answer> {
  const { body, raw, authorization = `Bearer ${service.apiKey}` } = options;
  const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await fetch(service.url + path, {
    method: options.method ?? (payload === undefined ? "GET" : "POST"),
    body: payload,
    headers: {
      ...(payload === undefined ? {} : { "content-type": "application/json" }),
      ...(authorization === null ? {} : { authorization }),
      ...options.headers,
    },
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === "" ? {} : JSON.parse(text) };
}

export const sh = (script: string) => ["sh", "-c", script];

/** A live session that is deleted when `use` is done, however it ends. */
export async function withSession<T>(use: (sessionId: string) => Promise<T>, request = {}): Promise<T> {
  const { session_id } = await client.sessions.create(request);
  try {
    await client.sessions.waitUntilLive(session_id);
    return await use(session_id);
  } finally {
    await ask(`/v1/sessions/${session_id}`, { method: "DELETE" }).catch(() => {});
  }
}
