/** The network that the node is asked to apply to a session's machine. Pure. */
import type { NetworkSpec } from "@vivarium/contract/node";
import type { SessionRow } from "../sessions/store.ts";

export function networkSpec(session: SessionRow): NetworkSpec {
  return {
    generation: session.network_generation,
    egress: session.egress,
    exposed: (session.exposed ?? []).map(({ port }) => port),
    ...(session.egress_limit_bytes !== null && { egress_limit_bytes: session.egress_limit_bytes }),
  };
}
