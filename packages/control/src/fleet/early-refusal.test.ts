/** A node that refuses a body before it has all of it, on a real socket. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterEach, beforeEach, expect, test } from "vitest";
import { eventually } from "../../test-support/control.ts";
import { NodeClient } from "./node-client.ts";

const KIB = 1024;
const UPLOADS = 200;

let dir: string;
let server: Server;
let client: NodeClient;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "early-refusal-"));
  server = createServer((_request, response) => {
    response.writeHead(400).end(JSON.stringify({ code: "outside_workspace", message: "a: leads out" }));
  });
  server.listen(join(dir, "node.sock"));
  await once(server, "listening");
  client = new NodeClient(join(dir, "node.sock"));
});

afterEach(async () => {
  client.close();
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true, force: true });
});

/** A body in pieces, some of them after the answer. */
async function* pieces() {
  for (let sent = 0; sent < 8; sent++) {
    yield Buffer.alloc(64 * KIB);
    await new Promise(setImmediate);
  }
}

test("its answer is read while much of the body is unsent, and the connection ends", async () => {
  for (let n = 0; n < UPLOADS; n++) {
    const call = { method: "PUT", path: "files/write", source: Readable.from(pieces()) } as const;
    await expect(
      client.guest("m-1", { ...call, signal: new AbortController().signal }),
    ).rejects.toMatchObject({ failure: "refused", code: "outside_workspace" });
  }
  await eventually(async () => {
    const open = await new Promise<number>((resolve) =>
      server.getConnections((_error, count) => resolve(count)),
    );
    expect(open).toBe(0);
  });
});
