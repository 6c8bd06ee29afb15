/** The gRPC origin of the world, which logs each call with its metadata: `/world.Greeter/Greet`, `Hidden` and the stream `Count`. */
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import {
  type handleUnaryCall,
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
} from "@grpc/grpc-js";
import type { WorldLog } from "./events.ts";
import type { Pair } from "./web-servers.ts";

const PORT = 443;

/** Texts as they are, in place of messages of a schema. */
const method = (name: string, responseStream: boolean): MethodDefinition<string, string> => ({
  path: `/world.Greeter/${name}`,
  requestStream: false,
  responseStream,
  requestSerialize: Buffer.from,
  requestDeserialize: String,
  responseSerialize: Buffer.from,
  responseDeserialize: String,
});

/** Returns what serves a connection. */
export function grpcOrigin(log: WorldLog, { certFile, keyFile }: Pair): (socket: Socket) => void {
  const greet: handleUnaryCall<string, string> = (call, answer) => {
    note(log, call);
    answer(null, `hello ${call.request}`);
  };
  const count = (call: ServerWritableStream<string, string>) => {
    note(log, call);
    for (let n = 1; n <= Number(call.request); n++) call.write(`number ${n}`);
    call.end();
  };
  const server = new Server();
  server.addService(
    { Greet: method("Greet", false), Hidden: method("Hidden", false), Count: method("Count", true) },
    { Greet: greet, Hidden: greet, Count: count },
  );
  const pair = { private_key: readFileSync(keyFile), cert_chain: readFileSync(certFile) };
  const injector = server.createConnectionInjector(ServerCredentials.createSsl(null, [pair]));
  return (socket) => injector.injectConnection(socket);
}

type Call = ServerUnaryCall<string, string> | ServerWritableStream<string, string>;

function note(log: WorldLog, call: Call): void {
  const metadata = Object.entries(call.metadata.getMap());
  log.add({
    kind: "request",
    ...{ host: call.getPeer().split(":")[0] ?? "?", port: PORT },
    method: "POST",
    url: call.getPath(),
    headers: ["host", call.getHost(), ...metadata.flatMap(([name, value]) => [name, String(value)])],
  });
}
