import { pipeline } from "node:stream/promises";
import { withInterrupt } from "../service/interrupt.ts";
import { sessionOfHost } from "../ssh/client-options.ts";
import { type Call, clientVerb, SESSION_ARGUMENT, type Verb } from "./verb.ts";

/** `viv tunnel`: joins standard input and output to a session's SSH server, as a ProxyCommand of SSH clients. */
export function tunnelCommand(): Verb {
  return clientVerb("tunnel", ["ssh -o ProxyCommand='viv tunnel %n' sandbox@viv-4x7k2m9q0a1b2c3d4e5f6"])
    .summary("the bytes of a session's SSH server, for a ProxyCommand")
    .description(
      "Join standard input and output to the SSH server of a session, as a ProxyCommand for SSH clients.",
    )
    .argument("<session>", `${SESSION_ARGUMENT}, or a host name as viv ssh-config makes them`)
    .does(openTunnel);
}

async function openTunnel(call: Call, host: string): Promise<void> {
  const { session } = await call.find(sessionOfHost(host));
  await withInterrupt(async (signal) => {
    const tunnel = await session.tunnel({ signal });
    const incoming = pipeline(tunnel, process.stdout);
    // The tunnel ends with the session's output; standard input may end earlier, or never.
    pipeline(process.stdin, tunnel, { signal }).catch(() => {});
    await incoming.finally(() => process.stdin.destroy());
  });
}
