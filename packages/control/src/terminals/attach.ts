/** Lets a client in: the session lives, the machine's side is open and the client is written down, or nothing of it is. */

import type { Duplex } from "node:stream";
import type { TerminalSpec, TunnelSpec } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { useMachine } from "../guest/use-machine.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import type { Attachment, Attachments } from "./attachments.ts";
import type { AttachmentKind } from "./attachments-store.ts";

export type AttachDeps = MoveDeps & {
  nodes: NodeClient;
  attachments: Attachments;
  /** How long a client waits for its session. */
  upgradeWaitMs: number;
};

export interface Attached {
  session: SessionRow;
  stream: Duplex;
  moved: AbortSignal;
}

interface AttachInput {
  sessionId: string;
  kind: AttachmentKind;
  spec: (session: SessionRow) => TerminalSpec | TunnelSpec;
  /** The client has gone. */
  signal: AbortSignal;
}

const PATHS = { pty: "terminals", tunnel: "tunnel" } as const satisfies Record<AttachmentKind, string>;

export async function attach(
  deps: AttachDeps,
  scope: Scope,
  input: AttachInput,
): Promise<Attached & Pick<Attachment, "leave">> {
  const { sessionId, signal } = input;
  const { upgradeWaitMs: waitMs } = deps;
  const deadline = AbortSignal.timeout(waitMs);
  const begun = useMachine(deps, scope, { sessionId, waitMs }, (session) =>
    open(deps, session, input, AbortSignal.any([signal, deadline])),
  );
  const { session, result, release } = await Promise.race([begun, late(deadline)]).catch(
    async (error: unknown) => {
      // Nobody is left who could use what comes of it.
      begun.then(({ result: unused, release: unhold }) => {
        unused.stream.destroy();
        unused.attachment.leave();
        unhold();
      }, ignore);
      // Whatever failed then, failed because of it, and nobody reads what is answered.
      if (signal.aborted)
        throw new ApiError("session_ended", "the client left during the handshake", { cause: error });
      throw await inTermsOfUpgrade(deps, sessionId, error, waitMs);
    },
  );
  // The attachment keeps the session from being idle from here on.
  release();
  const { stream, attachment } = result;
  return { session, stream, moved: attachment.moved, leave: attachment.leave };
}

async function open(deps: AttachDeps, session: SessionRow, { kind, spec }: AttachInput, signal: AbortSignal) {
  const stream = await openStream(deps, session, { kind, spec: spec(session), signal });
  try {
    return { stream, attachment: await deps.attachments.add(session, kind) };
  } catch (error) {
    stream.destroy();
    throw error;
  }
}

async function openStream(
  { nodes }: AttachDeps,
  session: SessionRow,
  { kind, spec, signal }: { kind: AttachmentKind; spec: TerminalSpec | TunnelSpec; signal: AbortSignal },
): Promise<Duplex> {
  try {
    return await nodes.openStream(machineIdOf(session), PATHS[kind], spec, signal);
  } catch (error) {
    if (!(error instanceof NodeError) || error.failure !== "broken") throw error;
    // A terminal that did not come about has left nothing behind, so trying again is safe.
    const text = "the node of this session broke the connection; try again";
    throw new ApiError("bad_gateway", text, { cause: error });
  }
}

const TOO_LATE = new ApiError("session_not_live", "the session was not ready in time");

function late(deadline: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) =>
    deadline.addEventListener("abort", () => reject(TOO_LATE), { once: true }),
  );
}

/** A wait that was too long says what for; a handshake has no `session_not_live` for a session that wakes. */
async function inTermsOfUpgrade(
  { db }: AttachDeps,
  sessionId: string,
  error: unknown,
  waitMs: number,
): Promise<unknown> {
  if (!(error instanceof ApiError)) return error;
  const wasCutOff = error.cause instanceof NodeError && error.cause.failure === "aborted";
  return error.code === "session_not_live" || wasCutOff ? await notInTime(db, sessionId, waitMs) : error;
}

async function notInTime(db: AttachDeps["db"], sessionId: string, waitMs: number): Promise<ApiError> {
  const now = await findSessionById(db, sessionId);
  const after = `after ${waitMs / 1000} s; try again`;
  return now?.state === "creating"
    ? new ApiError("session_not_live", `the session is still being created ${after}`)
    : new ApiError("session_unavailable", `the session is not ready ${after}`);
}

const ignore = () => undefined;
