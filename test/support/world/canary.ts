/**
 * Makes attempts that must never get through, one per millisecond, from a namespace in place of a guest: direct
 * connections, names over TLS and HTTP, DNS queries, datagrams. Prints their number when its input ends.
 */
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { PUBLIC } from "./addresses.ts";

const [deniedName = "", helloHex = ""] = process.argv.slice(2);
const hello = Buffer.from(helloHex, "hex");
const datagrams = createSocket("udp4").on("error", () => {});
const HEADER = Buffer.from([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
const labels = deniedName.split(".").map((label) => String.fromCharCode(label.length) + label);
const question = Buffer.concat([
  HEADER,
  Buffer.from(labels.join(""), "latin1"),
  Buffer.from([0, 0, 1, 0, 1]),
]);
const SECOND_MS = 1_000;
let tries = 0;

function dial(port: number, bytes: Buffer | string): void {
  const socket = connect({ host: PUBLIC.denied, port });
  socket.on("error", () => {});
  socket.once("connect", () => socket.write(bytes));
  setTimeout(() => socket.destroy(), SECOND_MS).unref();
}

const KINDS = [
  () => dial(443, hello),
  () => dial(80, `GET / HTTP/1.1\r\nHost: ${deniedName}\r\n\r\n`),
  () => dial(9000, "direct"),
  () => datagrams.send(question, 53, "10.200.0.1", () => {}),
  () => datagrams.send(question, 53, PUBLIC.strangeResolver, () => {}),
  () => datagrams.send("direct", 9000, PUBLIC.denied, () => {}),
  () => datagrams.send("direct", 443, PUBLIC.denied, () => {}),
];

setInterval(() => {
  KINDS[tries % KINDS.length]?.();
  tries++;
}, 1);
process.stdin.resume().once("end", () => {
  process.stdout.write(String(tries), () => process.exit(0));
});
