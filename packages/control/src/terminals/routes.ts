/** WebSocket routes of terminals and of the tunnel to the session's SSH server. */
import { PtyQuery } from "@vivarium/contract/api";
import type { TerminalSpec } from "@vivarium/contract/guest";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import type { CommandEntry } from "../audit/command-log.ts";
import { newRow } from "../audit/entry.ts";
import { MACHINE_REFUSALS } from "../guest/routes.ts";
import { principalOf } from "../http/authenticate.ts";
import { keepAlive } from "../http/keep-alive.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import { SessionParams } from "../sessions/params.ts";
import { type Attached, type AttachInput, attach } from "./attach.ts";
import type { TerminalDeps } from "./deps.ts";
import { type Protocol, TerminalProtocol, TUNNEL_PROTOCOL } from "./messages.ts";
import { relay } from "./relay.ts";

const tags = ["Terminals"];
const answers = {
  101: z.void().meta({ description: "The connection is a WebSocket from here on" }),
  ...MACHINE_REFUSALS,
};

export function addTerminalRoutes(server: Server, deps: TerminalDeps): void {
  const upgrade = {
    config: { changesThings: true },
    preHandler: async (request: FastifyRequest, reply: FastifyReply) => deps.upgrades.check(request, reply),
  };
  server.get(
    "/v1/sessions/:id/pty",
    {
      schema: {
        operationId: "openTerminal",
        summary: "Open a terminal over a WebSocket",
        description: PTY_FRAMES,
        tags,
        params: SessionParams,
        querystring: PtyQuery,
        response: answers,
      },
      preValidation: async (request) => makeCommandList(request.query),
      ...upgrade,
    },
    async (request, reply) => {
      const { params, query } = request;
      const { cmd } = query;
      const by = callerOf(principalOf(request), request);
      const input = {
        sessionId: params.id,
        kind: "pty" as const,
        spec: (env: Record<string, string>) => terminalSpec(env, query),
        log: ({ session, secrets }: Attached) =>
          cmd && deps.commandLog.started({ session, by, kind: "pty", argv: cmd, secrets }),
      };
      await serve(deps, { request, reply }, input, new TerminalProtocol());
      return reply;
    },
  );
  server.get(
    "/v1/sessions/:id/tunnel",
    {
      schema: {
        operationId: "openTunnel",
        summary: "Reach the session's SSH server over a WebSocket",
        description:
          "Binary messages carry raw SSH bytes, without any framing; meant for an SSH client's proxy command.",
        tags,
        params: SessionParams,
        response: answers,
      },
      ...upgrade,
    },
    async (request, reply) => {
      const spec = (env: Record<string, string>) => ({ env });
      const input = { sessionId: request.params.id, kind: "tunnel" as const, spec };
      await serve(deps, { request, reply }, input, TUNNEL_PROTOCOL);
      return reply;
    },
  );
}

interface ServeInput extends AttachInput {
  /** Starts the audit entry of the command that the client asked for, if there is one. */
  log?: (attached: Attached) => CommandEntry | undefined;
}

/** Serves one client. A failure before the upgrade is an ordinary answer, a later one a close code. */
async function serve(
  deps: TerminalDeps,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  input: ServeInput,
  protocol: Protocol,
): Promise<void> {
  const attached = await attach(deps, scopeOf(principalOf(request)), input, clientGone(reply));
  const startedAt = performance.now();
  const entry = input.log?.(attached);
  try {
    const webSocket = await deps.upgrades.accept(request, reply).catch((err: unknown) => {
      request.log.info({ err }, "the client left before its connection was upgraded");
    });
    if (!webSocket) return;
    if (!entry) auditOpening(deps, request, { id: attached.session.id, kind: input.kind });
    keepAlive(webSocket);
    await relay(deps, attached, webSocket, protocol);
  } catch (err) {
    request.log.error({ err }, "a terminal or tunnel failed");
  } finally {
    attached.stream.destroy();
    attached.leave();
    if (protocol.exitCode === undefined) entry?.lost();
    else
      entry?.ended({ exit_code: protocol.exitCode, duration_ms: Math.round(performance.now() - startedAt) });
  }
}

/** A terminal with a command has the entry of the command. */
function auditOpening(
  { auditKey, auditQueue }: TerminalDeps,
  request: FastifyRequest,
  { id, kind }: { id: string; kind: AttachInput["kind"] },
): void {
  const by = callerOf(principalOf(request), request);
  const action = kind === "pty" ? "terminal.open" : "tunnel.open";
  auditQueue.add(newRow(auditKey, { by, action, target: id, sessionId: id }));
}

function terminalSpec(env: Record<string, string>, query: PtyQuery): TerminalSpec {
  const { rows, cols, term, colorterm, cmd, cwd, terminal } = query;
  return {
    ...(cmd && { argv: cmd }),
    ...(cwd != null && { cwd }),
    env: { ...env, TERM: term, ...(colorterm !== undefined && { COLORTERM: colorterm }) },
    rows,
    cols,
    ...(terminal !== undefined && { name: terminal }),
  };
}

/** Makes a list of a single `cmd`. The parameter is repeated, one word of the command each. */
function makeCommandList(query: unknown): void {
  const words = query as { cmd?: string | string[] };
  if (typeof words.cmd === "string") words.cmd = [words.cmd];
}

const PTY_FRAMES = `Binary messages: one byte type, then the payload.

| Type | Direction | Payload |
|---|---|---|
| \`0x01\` data | both | bytes |
| \`0x02\` resize | to the session | rows, columns: 16 bits each, big-endian |
| \`0x03\` signal | to the session | one byte, 1 to 31 |
| \`0x05\` exit | to the client | exit code, 32 bits, big-endian; the last message, then the connection closes with 1000 |
| \`0x06\` error | to the client | UTF-8 text; then the connection closes with 1011 |`;
