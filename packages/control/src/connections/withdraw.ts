/** Takes the credentials of a session that ends from its node, where its machine runs on for the capture of its artifacts. */
import type { Log } from "@vivarium/kit/log";
import { isActive } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type PushDeps, readOpened } from "./push.ts";

/**
 * Call before the end is written: it destroys what is read here. Without it the gateway would inject until a lease without
 * the session reaches it. Never throws: the session ends all the same. If it does not end after all, the next lease finds
 * that the node has another version, and the session's Connections are sent again.
 */
export async function withdrawBeforeEnd(
  deps: PushDeps & { log: Log },
  session: Pick<SessionRow, "id" | "state" | "ca_certificate" | "artifact_paths">,
): Promise<void> {
  const { id, state, ca_certificate: ca, artifact_paths: paths } = session;
  if (ca === null || paths === null || !isActive(state)) return;
  try {
    const opened = await readOpened(deps, id);
    if (!opened) return;
    const ended = opened.connections.map(({ name, host }) => ({ name, host, state: "revoked" as const }));
    await deps.nodes.putConnections({
      ...opened,
      version: opened.version + 1,
      connections: [],
      tombstones: [...opened.tombstones, ...ended],
    });
  } catch (err) {
    deps.log.warn(
      { err, session_id: id },
      "the Connections of a session that ends stay until their lease is over",
    );
  }
}
