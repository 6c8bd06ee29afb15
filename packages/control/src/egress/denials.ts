/** Emits `egress.denied` and `dns.anomaly`: denials of each session, summed up by minute, each once. */
import { appendEvents, eventOf, type NewEvent } from "../events/append.ts";
import { type Denial, isAnomaly, takeDenials } from "./denials-store.ts";
import type { EgressDeps } from "./deps.ts";

/**
 * Most destinations per session and minute that get an event each. The others are summed up by reason, so that a guest
 * cannot flood the organisation's events.
 */
const MOST_NAMED = 20;

export async function emitDenials({ db }: Pick<EgressDeps, "db">): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const minutes = Map.groupBy(await takeDenials(tx), ({ id, minute }) => `${minute.getTime()} ${id}`);
    await appendEvents(tx, [...minutes.values()].flatMap(eventsOf));
  });
}

function eventsOf(denials: readonly Denial[]): NewEvent[] {
  const anomalies = denials.filter(isAnomaly).map((one) => eventOf(one, "dns.anomaly", dataOf(one)));
  const refused = denials.filter((denial) => !isAnomaly(denial));
  const named = refused
    .slice(0, MOST_NAMED)
    .map((denial) => eventOf(denial, "egress.denied", dataOf(denial)));
  const rest = [...Map.groupBy(refused.slice(MOST_NAMED), ({ reason }) => reason).values()];
  const summed = rest.flatMap((alike) => {
    const count = alike.reduce((sum, denial) => sum + denial.count, 0);
    return alike.slice(0, 1).map((one) => eventOf(one, "egress.denied", { reason: one.reason, count }));
  });
  return [...anomalies, ...named, ...summed];
}

function dataOf({ host, address, port, reason, count }: Denial): Record<string, unknown> {
  return {
    ...(host !== "" && { host }),
    ...(address !== "" && { address }),
    ...(port !== 0 && { port }),
    reason,
    count,
  };
}
