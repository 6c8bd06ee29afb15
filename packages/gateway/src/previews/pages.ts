/** The pages for visitors that the guest does not answer. */
import type { ServerResponse } from "node:http";
import { valuesOf } from "@vivarium/http1/headers";
import { hasBody } from "@vivarium/http1/strict-request";
import { isNavigation, type Visit } from "./visit.ts";

export interface Page {
  status: number;
  title: string;
  text: string;
  headers?: Record<string, string>;
  /** Seconds after which a browser reloads the page. */
  refresh_s?: number;
}

/** Closes a refused visitor's connection, so that it becomes free for an admitted visitor. */
const CLOSES = { Connection: "close" };

/**
 * One page for all cases that must look alike:
 *
 * - an unknown host, session or port, or a destroyed session;
 * - a missing or wrong token, or a route that was changed while the request waited;
 * - a paused session whose previews may not wake it;
 * - the script of a service worker;
 * - a request from another site's page with only the cookie (its WebSocket gets FOREIGN_ORIGIN).
 */
export const NOT_FOUND: Page = {
  status: 404,
  title: "There is no preview here",
  text: "The address may be incomplete, or the preview has ended. Ask whoever gave it to you for the full link.",
  headers: CLOSES,
};

export const UNAUTHORIZED: Page = {
  status: 401,
  title: "This preview wants a bearer token",
  text: "Send it as a header: Authorization: Bearer <token>.",
  headers: { "WWW-Authenticate": "Bearer", ...CLOSES },
};

export const FOREIGN_ORIGIN: Page = {
  status: 403,
  title: "This WebSocket comes from another site",
  text: "A browser may open one only from a page of this preview.",
};

export const WAKING: Page = {
  status: 503,
  title: "Waking up",
  text: "The session was paused and is taking a moment to wake. This page tries again by itself.",
  headers: { "Retry-After": "2" },
  refresh_s: 2,
};

/** For admitted visitors of a session that has expired or failed, or whose node is lost. */
export const GONE: Page = {
  status: 410,
  title: "This preview is over",
  text: "Its session has come to its end and cannot be woken again.",
};

export const UNAVAILABLE: Page = {
  status: 503,
  title: "This preview cannot be reached",
  text: "The machine behind it is out of reach for now. Please try again in a moment.",
  headers: { "Retry-After": "5" },
};

export const BUSY: Page = {
  status: 503,
  title: "Too many visitors at once",
  text: "This preview is answering as many requests as it may. Please try again in a moment.",
  headers: { "Retry-After": "1", Connection: "close" },
};

export const NO_ANSWER: Page = {
  status: 504,
  title: "No answer in time",
  text: "A program listens on this port, but it has not begun to answer.",
};

export function notWoken(retryAfterS: number): Page {
  return {
    status: 503,
    title: "The session could not be woken",
    text: "It is paused, and waking it was not possible just now. Please try again a little later.",
    headers: { "Retry-After": String(retryAfterS) },
  };
}

export function nothingListens(port: number): Page {
  return {
    status: 502,
    title: `Nothing listens on port ${port}`,
    text: `The session runs, but no program in it answers on port ${port}. It must listen on 0.0.0.0:${port}, not on 127.0.0.1 or localhost.`,
  };
}

export function badAnswer(port: number): Page {
  return {
    status: 502,
    title: `No proper answer from port ${port}`,
    text: `A program listens on port ${port}, but what it sent is not a complete HTTP answer.`,
  };
}

/** Sends HTML to browsers, else text or JSON as `Accept` asks. NOT_FOUND is HTML for all clients. */
export function sendPage(response: ServerResponse, visit: Visit | undefined, page: Page): void {
  if (response.headersSent || response.destroyed) return;
  const isHtml = page === NOT_FOUND || (visit !== undefined && isNavigation(visit));
  const body = Buffer.from(isHtml ? html(page) : text(page, visit));
  response.writeHead(page.status, {
    "Content-Type": `${isHtml ? "text/html" : kindFor(visit)}; charset=utf-8`,
    "Content-Length": body.length,
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    ...page.headers,
    // Closing the connection is cheaper than reading a body that is not wanted.
    ...(hasBody(response.req) && { Connection: "close" }),
  });
  response.end(body);
}

const wantsJson = (visit: Visit | undefined) =>
  visit !== undefined &&
  valuesOf(visit.headers, "accept").some((value) => /^application\/json\b/i.test(value));

const kindFor = (visit: Visit | undefined) => (wantsJson(visit) ? "application/json" : "text/plain");

function text({ status, title, text }: Page, visit: Visit | undefined): string {
  return wantsJson(visit) ? `${JSON.stringify({ status, title, text })}\n` : `${title}. ${text}\n`;
}

function html({ title, text, refresh_s }: Page): string {
  const refresh = refresh_s === undefined ? "" : `<meta http-equiv="refresh" content="${refresh_s}">\n`;
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
${refresh}<title>${escaped(title)}</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0; padding: 0 1.5rem }
h1 { font-size: 1.4rem; font-weight: 600 }
p { opacity: 0.75 }
</style>
<h1>${escaped(title)}</h1>
<p>${escaped(text)}</p>
</html>
`;
}

const escaped = (plain: string) => plain.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
