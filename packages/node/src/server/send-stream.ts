import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { pipeline, type Readable } from "node:stream";
import type { FastifyReply } from "fastify";

/** Headers leave at once: they say that the call was accepted, which may be long before there is anything to send. */
export function sendStream(reply: FastifyReply, content: Readable, headers: OutgoingHttpHeaders = {}): void {
  reply.hijack();
  const response: ServerResponse = reply.raw;
  // What fails after the caller has gone fails for nobody.
  content.on("error", () => {});
  if (response.destroyed || response.socket?.destroyed) {
    // The caller left before there was an answer: what it asked for ends as for any whose caller leaves.
    content.destroy();
    return;
  }
  response.writeHead(200, { "content-type": "application/octet-stream", ...headers });
  response.flushHeaders();
  // Ends the content when the caller has gone; breaks the answer off when the content fails.
  pipeline(content, response, () => response.destroy());
}
