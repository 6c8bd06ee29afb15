import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { pipeline, type Readable } from "node:stream";
import type { FastifyReply } from "fastify";

/** Headers are sent at once: they confirm that the call was accepted, possibly long before there is content. */
export function sendStream(reply: FastifyReply, content: Readable, headers: OutgoingHttpHeaders = {}): void {
  reply.hijack();
  const response: ServerResponse = reply.raw;
  // Errors after the caller has gone concern no one.
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
