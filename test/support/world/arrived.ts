/** The requests that arrived in the world since the last look, each with the value of one of its headers. */
import type { World } from "./world.ts";

/** `METHOD host-header url`, and the header's value; undefined without it. */
export async function arrivedIn(
  world: World,
  header = "authorization",
): Promise<[request: string, value: string | undefined][]> {
  const events = await world.take();
  return events.flatMap((event): [string, string | undefined][] => {
    if (event.kind !== "request") return [];
    const value = (name: string) => {
      const at = event.headers.findIndex((one, index) => index % 2 === 0 && one.toLowerCase() === name);
      return at < 0 ? undefined : event.headers[at + 1];
    };
    return [[`${event.method} ${value("host")} ${event.url}`, value(header)]];
  });
}
