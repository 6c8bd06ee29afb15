/** An https origin in a process of its own. Takes its key pair from a file, prints its port. `/bytes/N` answers N bytes. */
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";

const BLOCK = Buffer.alloc(64 * 1024, "abcdefghijklmnopqrstuvwxyz012345\n");
const [pairFile = "", address] = process.argv.slice(2);
const server = createServer(JSON.parse(readFileSync(pairFile, "utf8")), (request, response) => {
  const [, bytes] = /^\/bytes\/(\d+)$/.exec(request.url ?? "") ?? [];
  if (bytes === undefined) return void response.end("ok");
  let left = Number(bytes);
  response.writeHead(200, { "content-length": left });
  const fill = () => {
    while (left > 0) {
      const block = BLOCK.subarray(0, Math.min(left, BLOCK.length));
      left -= block.length;
      if (!response.write(block)) return;
    }
    response.end();
  };
  response.on("drain", fill);
  fill();
});
server.keepAliveTimeout = 60_000;
server.listen(0, address, () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
