/** Connects to a machine's agent port and resyncs it. Guest bytes are hostile. */
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { GUEST_LIMITS, HELLO_INTERVAL_MS, helloLine, readyLine } from "@vivarium/contract/guest";

/** Returns a socket whose next byte belongs to HTTP/2. Throws if the agent does not answer within the limit. */
export async function openChannel(socketPath: string, limitMs: number): Promise<Socket> {
  const socket = connect(socketPath);
  try {
    await resync(socket, limitMs);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function resync(socket: Socket, limitMs: number): Promise<void> {
  const nonce = randomBytes(16).toString("hex");
  const expected = Buffer.from(readyLine(nonce));
  return new Promise((resolve, reject) => {
    let tail: Buffer = Buffer.alloc(0);
    let discarded = 0;
    const hello = setInterval(() => socket.write(helloLine(nonce)), HELLO_INTERVAL_MS);
    const limit = setTimeout(
      () => finish(new Error(`the agent did not answer within ${limitMs} ms`)),
      limitMs,
    );

    const finish = (error?: Error) => {
      clearInterval(hello);
      clearTimeout(limit);
      socket.off("data", onData);
      socket.off("error", finish);
      socket.off("close", onClose);
      socket.pause();
      if (error) reject(error);
      else resolve();
    };
    const onClose = () => finish(new Error("the agent port closed"));
    const onData = (chunk: Buffer) => {
      const seen = Buffer.concat([tail, chunk]);
      const at = seen.indexOf(expected);
      if (at >= 0) {
        finish();
        const rest = seen.subarray(at + expected.length);
        if (rest.length > 0) socket.unshift(rest);
        return;
      }
      discarded += chunk.length;
      if (discarded > GUEST_LIMITS.resyncBytes) finish(new Error("the agent port is flooded"));
      tail = seen.subarray(-(expected.length - 1));
    };

    socket.on("data", onData);
    socket.once("error", finish);
    socket.once("close", onClose);
    socket.once("connect", () => socket.write(helloLine(nonce)));
  });
}
