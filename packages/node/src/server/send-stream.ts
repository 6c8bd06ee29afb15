import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { pipeline, type Readable } from "node:stream";
import type { FastifyReply } from "fastify";

/** Answers with a stream. Headers are sent at once, because they confirm the call, maybe long before there is content. */
export function sendStream(reply: FastifyReply, content: Readable, headers: OutgoingHttpHeaders = {}): void {
  reply.hijack();
  const response: ServerResponse = reply.raw;
  // Without a listener, an error after the caller has gone would end the process.
  content.on("error", () => {});
  if (response.destroyed || response.socket?.destroyed) {
    // The caller left before there was an answer, so its request is ended.
    content.destroy();
    return;
  }
  response.writeHead(200, { "content-type": "application/octet-stream", ...headers });
  response.flushHeaders();
  // Ends the content if the caller has gone. Breaks the answer off if the content fails.
  pipeline(content, response, () => response.destroy());
}
