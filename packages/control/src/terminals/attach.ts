/**
 * Attaches a client to a terminal or tunnel: wakes the session, opens the stream on the machine and writes the client's
 * lease. If one of these fails, the others are undone.
 */
import { once } from "node:events";
import type { Duplex } from "node:stream";
import type { TerminalSpec, TunnelSpec } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { type Environment, environmentOf } from "../guest/environment.ts";
import { useMachine } from "../guest/use-machine.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import type { Attachment } from "./attachments.ts";
import type { AttachmentKind } from "./attachments-store.ts";
import type { TerminalDeps } from "./deps.ts";

export interface Attached extends Attachment, Pick<Environment, "secrets"> {
  session: SessionRow;
  stream: Duplex;
}

export interface AttachInput {
  sessionId: string;
  kind: AttachmentKind;
  spec: (env: Record<string, string>) => TerminalSpec | TunnelSpec;
}

const PATHS = { pty: "terminals", tunnel: "tunnel" } as const satisfies Record<AttachmentKind, string>;

export async function attach(
  deps: TerminalDeps,
  scope: Scope,
  input: AttachInput,
  /** Aborts when the client has gone. */
  signal: AbortSignal,
): Promise<Attached> {
  const { sessionId } = input;
  const { upgradeWaitMs: waitMs } = deps;
  const deadline = AbortSignal.timeout(waitMs);
  const begun = useMachine(deps, scope, { sessionId, waitMs }, (session) =>
    open(deps, session, input, AbortSignal.any([signal, deadline])),
  );
  const { session, result, release } = await Promise.race([begun, rejectAt(deadline)]).catch(
    async (error: unknown) => {
      // The client is gone or was refused. Release what may still be opened for it.
      begun.then((unused) => {
        unused.result.stream.destroy();
        unused.result.leave();
        unused.release();
      }, ignore);
      // The client left, which caused the error. No one reads the answer.
      if (signal.aborted)
        throw new ApiError("session_ended", "the client left during the handshake", { cause: error });
      throw await upgradeErrorOf(deps, sessionId, error);
    },
  );
  // From here on the attachment keeps the session from becoming idle.
  release();
  return { session, ...result };
}

async function open(
  deps: TerminalDeps,
  session: SessionRow,
  { kind, spec }: AttachInput,
  signal: AbortSignal,
): Promise<Omit<Attached, "session">> {
  const { env, secrets } = await environmentOf(deps, session);
  const opening = deps.nodes.openStream(machineIdOf(session), PATHS[kind], spec(env), signal);
  const stream = await opening.catch(rewordBreak);
  try {
    return { stream, secrets, ...(await deps.attachments.add(session, kind)) };
  } catch (error) {
    stream.destroy();
    throw error;
  }
}

/** Makes a broken opening retryable: a stream that was not opened left nothing behind. Other errors are rethrown. */
function rewordBreak(error: unknown): never {
  if (!(error instanceof NodeError) || error.failure !== "broken") throw error;
  const text = "the node of this session broke the connection; try again";
  throw new ApiError("bad_gateway", text, { cause: error });
}

async function rejectAt(deadline: AbortSignal): Promise<never> {
  await once(deadline, "abort");
  throw new ApiError("session_not_live", "the session was not ready in time");
}

/**
 * Words the error of a wait that took too long: `session_not_live` while the session is being created, otherwise
 * `session_unavailable`. Returns other errors unchanged.
 */
async function upgradeErrorOf(
  { db, upgradeWaitMs }: TerminalDeps,
  sessionId: string,
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof ApiError)) return error;
  const wasCutOff = error.cause instanceof NodeError && error.cause.failure === "aborted";
  if (error.code !== "session_not_live" && !wasCutOff) return error;
  const now = await findSessionById(db, sessionId);
  const after = `after ${upgradeWaitMs / 1000} s; try again`;
  return now?.state === "creating"
    ? new ApiError("session_not_live", `the session is still being created ${after}`)
    : new ApiError("session_unavailable", `the session is not ready ${after}`);
}

const ignore = () => undefined;
