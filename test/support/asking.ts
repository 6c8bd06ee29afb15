/** HTTP requests without the SDK, for facts that it hides: statuses, headers, raw bytes. */
import type { ServiceFacts } from "./service.ts";

export interface Answer {
  status: number;
  headers: Headers;
  /** Parsed JSON, or undefined for an empty body. */
  body: Record<string, unknown>;
}

export interface Ask {
  method?: string;
  body?: unknown;
  /** Raw body, instead of `body`. */
  raw?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  /** Authorization header; null sends none; default: the service's key. */
  authorization?: string | null;
}

export async function askAt(
  service: Pick<ServiceFacts, "url" | "apiKey">,
  path: string,
  options: Ask = {},
): Promise<Answer> {
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
