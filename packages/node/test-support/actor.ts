/**
 * A process inside a network namespace that listens, dials and sends as a test commands: one JSON command per line on
 * standard input, one answer per line. Servers echo, and log what reached them.
 */
import { createSocket } from "node:dgram";
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";

type Command = {
  id: number;
  op: string;
  host: string;
  port: number;
  from?: string;
  text: string;
  conn: number;
  ms: number;
};

const sockets = new Map<number, Socket>();
const received: { kind: string; port: number; host: string; from: string; text: string }[] = [];
let lastConnection = 0;

const TICK_MS = 50;

/** A timer that counts a pause of this process as one tick, so that bytes that arrived meanwhile are read first. */
function afterPatience(ms: number, done: () => void): NodeJS.Timeout {
  let left = ms;
  const ticks = setInterval(() => {
    left -= TICK_MS;
    if (left > 0) return;
    clearInterval(ticks);
    done();
  }, TICK_MS);
  return ticks;
}

const operations: Record<string, (command: Command) => Promise<unknown>> = {
  listen: ({ host, port }) =>
    new Promise((resolve, reject) => {
      const server = createServer((socket) => {
        const from = socket.remoteAddress ?? "";
        received.push({ kind: "tcp", host, port, from, text: "" });
        socket.on("error", () => {});
        socket.on("data", (bytes) => {
          received.push({ kind: "tcp", host, port, from, text: bytes.toString().slice(0, 100) });
          socket.write(bytes);
        });
      });
      server.once("error", reject);
      server.listen(port, host, () => resolve(true));
    }),
  listenUdp: ({ host, port }) =>
    new Promise((resolve, reject) => {
      const socket = createSocket("udp4");
      socket.on("message", (bytes, from) => {
        received.push({ kind: "udp", host, port, from: from.address, text: bytes.toString().slice(0, 100) });
        socket.send(bytes, from.port, from.address);
      });
      socket.once("error", reject);
      socket.bind(port, host, () => resolve(true));
    }),
  /** Opens a connection. Returns its number, or why it failed. */
  dial: ({ host, port, from, ms }) =>
    new Promise((resolve) => {
      const socket = connect({ host, port, ...(from && { localAddress: from }) });
      const conn = ++lastConnection;
      const timer = afterPatience(ms, () => {
        socket.destroy();
        resolve("silence");
      });
      socket.on("error", (error: NodeJS.ErrnoException) => {
        clearInterval(timer);
        resolve(error.code);
      });
      socket.once("connect", () => {
        clearInterval(timer);
        sockets.set(conn, socket);
        resolve(conn);
      });
    }),
  /** Opens many connections at once and closes all after `ms`. Returns the number of each outcome. */
  dialMany: ({ host, port, conn: count, ms }) =>
    new Promise((resolve) => {
      const outcomes: Record<string, number> = {};
      const report = (what: string) => {
        outcomes[what] = (outcomes[what] ?? 0) + 1;
      };
      const dialled = Array.from({ length: count }, () => {
        const socket = connect({ host, port });
        socket.on("error", (error: NodeJS.ErrnoException) => report(error.code ?? "error"));
        socket.once("connect", () => report("connected"));
        return socket;
      });
      // The time starts when all connections are in flight.
      setImmediate(() =>
        afterPatience(ms, () => {
          for (const socket of dialled) socket.resetAndDestroy();
          resolve(outcomes);
        }),
      );
    }),
  /** Opens many connections, a hundred at a time, and closes each once it is open. Returns the number of each outcome. */
  churn: async ({ host, port, conn: count, ms }) => {
    const outcomes: Record<string, number> = {};
    for (let begun = 0; begun < count; begun += 100) {
      const batch = Array.from({ length: Math.min(100, count - begun) }, () => openAndClose(host, port, ms));
      for (const outcome of await Promise.all(batch)) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    return outcomes;
  },
  /** Sends a text on a connection. Returns the bytes that came back, "silence" or "closed". */
  say: ({ conn, text, ms }) =>
    new Promise((resolve) => {
      const socket = sockets.get(conn);
      if (!socket || socket.destroyed) return resolve("closed");
      const done = (what: string) => {
        clearInterval(timer);
        socket.off("data", onData).off("close", onClose);
        resolve(what);
      };
      const onData = (bytes: Buffer) => done(bytes.toString());
      const onClose = () => done("closed");
      const timer = afterPatience(ms, () => done("silence"));
      socket.on("data", onData).on("close", onClose);
      socket.write(text);
    }),
  udp: ({ host, port, text, from, ms }) =>
    new Promise((resolve) => {
      const socket = createSocket("udp4");
      const done = (what: string) => {
        clearInterval(timer);
        socket.close();
        resolve(what);
      };
      const timer = afterPatience(ms, () => done("silence"));
      socket.on("error", (error: NodeJS.ErrnoException) => done(error.code ?? "error"));
      socket.on("message", (bytes) => done(bytes.toString()));
      socket.bind(0, from, () => socket.send(text, port, host, (error) => error && done(String(error))));
    }),
  /** Sends many datagrams from one socket, without waiting for answers. */
  flood: ({ host, port, text, ms: count }) =>
    new Promise((resolve) => {
      const socket = createSocket("udp4");
      let sent = 0;
      const one = () => {
        if (sent++ === count) return socket.close(() => resolve(true));
        socket.send(text, port, host, one);
      };
      one();
    }),
  /** Resets all connections, so that nothing unanswered is sent again. */
  hangUp: async () => {
    for (const socket of sockets.values()) socket.resetAndDestroy();
    sockets.clear();
  },
  log: async () => received.splice(0),
};

function openAndClose(host: string, port: number, ms: number): Promise<string> {
  const socket = connect({ host, port });
  let outcome = "silence";
  const timer = afterPatience(ms, () => socket.destroy());
  socket.once("connect", () => {
    outcome = "connected";
    socket.end();
  });
  socket.on("error", (error: NodeJS.ErrnoException) => {
    outcome = error.code ?? "error";
  });
  return new Promise((resolve) =>
    socket.once("close", () => {
      clearInterval(timer);
      resolve(outcome);
    }),
  );
}

createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const command = JSON.parse(line) as Command;
    const result = await operations[command.op]?.(command).catch(
      (error: Error) => `failed: ${error.message}`,
    );
    process.stdout.write(`${JSON.stringify({ id: command.id, result })}\n`);
  })
  .on("close", () => process.exit(0));
