/** `egress.denied` and `dns.anomaly`: what a session was refused, summed up per minute and told once. */
import type { Database, Queries } from "../db/pool.ts";
import { appendEvents, eventOf, type NewEvent } from "../events/append.ts";
import { type Denial, isAnomaly, takeDenials } from "./denials-store.ts";

/**
 * Places that one session's minute is told by name. A guest may try as many as it likes: what is beyond this is summed
 * up per reason, so that it cannot drown the events of its organisation.
 */
const PLACES = 20;

export async function tellDenials({ db }: { db: Database }): Promise<void> {
  await db.transaction().execute((tx) => tellIn(tx));
}

async function tellIn(tx: Queries): Promise<void> {
  const minutes = Map.groupBy(await takeDenials(tx), ({ id, minute }) => `${minute.getTime()} ${id}`);
  await appendEvents(tx, [...minutes.values()].flatMap(eventsOf));
}

function eventsOf(denials: readonly Denial[]): NewEvent[] {
  const anomalies = denials.filter(isAnomaly).map((one) => eventOf(one, "dns.anomaly", placeOf(one)));
  const refused = denials.filter((denial) => !isAnomaly(denial));
  const named = refused.slice(0, PLACES).map((denial) => eventOf(denial, "egress.denied", placeOf(denial)));
  const rest = [...Map.groupBy(refused.slice(PLACES), ({ reason }) => reason).values()];
  const summed = rest.flatMap((alike) => {
    const count = alike.reduce((sum, denial) => sum + denial.count, 0);
    return alike.slice(0, 1).map((one) => eventOf(one, "egress.denied", { reason: one.reason, count }));
  });
  return [...anomalies, ...named, ...summed];
}

function placeOf({ host, address, port, reason, count }: Denial): Record<string, unknown> {
  return {
    ...(host !== "" && { host }),
    ...(address !== "" && { address }),
    ...(port !== 0 && { port }),
    reason,
    count,
  };
}
