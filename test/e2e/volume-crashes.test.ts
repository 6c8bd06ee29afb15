/**
 * The daemon and control die at the points of a volume's life: while it is made, attached, detached and deleted. The caller
 * asks again, and finds everything that was acknowledged. Control's own deaths while a session gets or gives back its volume
 * are tested without machines (packages/control/src/volumes/crash-points.test.ts).
 */
import { existsSync, readdirSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { type Service, startService } from "../support/service.ts";

const OF_CONTROL = [
  ...["volume_create.commit", "volume_create.made"],
  ...["volume_delete.commit", "volume_delete.removed"],
];
/** Points that one life meets: few of a start, because a session must come to life within five minutes. */
const LIVES = [
  ["volume_create.commit", "volume.made", "volume_create.made", "start.journal", "volume.held"],
  ["volume.grown", "start.load", "volume.offered", "volume_delete.commit", "volume.removed"],
  ["volume.inserted", "volume.mounted", "start.handshake", "volume_delete.removed"],
  ["stop.volume", "stop.killed", "volume.saved", "volume.released", "stop.released"],
];
const POINTS = LIVES.flat();
/** The supervisor waits up to five seconds before it starts a process again that keeps dying. */
const BACK_MS = 120_000;

let service: Service;
let client: Client;
beforeAll(async () => {
  service = await startService({ env: { VIV_CRASH_AT: POINTS.join(",") } });
  const { url, apiKey } = service.facts;
  client = new Client({ url, apiKey, retries: 0 });
  // A point with a marker is passed.
  for (const point of POINTS) await writeFile(marker(point), "");
});
afterAll(() => service?.stop());

const folderOf = (point: string) => join(service.facts.dataDir, OF_CONTROL.includes(point) ? "control" : ".");
const marker = (point: string) => join(folderOf(point), `crashed-at-${point}`);
const again = <T>(work: () => Promise<T>) => eventually(work, BACK_MS);
const run = async (id: string, script: string) => {
  const { stdout, stderr, exit_code } = await client.sessions.exec(id, { command: ["sh", "-c", script] });
  expect(exit_code, `${script}: ${stdout}${stderr}`).toBe(0);
  return stdout.trim();
};
/** An answer may be lost: the same request again finds the session that it made. */
const createWith = (volumeId: string) => {
  const idempotencyKey = crypto.randomUUID();
  return again(() => client.sessions.create({ volume_id: volumeId }, { idempotencyKey }));
};
const end = (id: string) =>
  again(() =>
    client.sessions.delete(id).catch((error) => {
      if (error.code !== "not_found") throw error;
    }),
  );

test.each(LIVES.map((points) => [points.join(", "), points] as const))(
  "a volume lives through deaths at %s, and nothing is left of it",
  async (_names, points) => {
    for (const point of points) await rm(marker(point));
    const volume = await again(() => client.volumes.create());
    await again(() => client.volumes.grow(volume.id, 2));
    const first = await createWith(volume.id);
    await again(() => run(first.session_id, "echo kept > /volume/file; sync /volume/file"));
    await end(first.session_id);
    const next = await createWith(volume.id);
    await again(async () => {
      const third = client.sessions.create({ volume_id: volume.id });
      await expect(third).rejects.toMatchObject({ status: 409 });
    });
    expect(await again(() => run(next.session_id, "cat /volume/file"))).toBe("kept");
    await end(next.session_id);
    // Attempts whose answer was lost made volumes that nobody knows.
    await again(async () => {
      for (const one of (await client.volumes.list()).volumes) await client.volumes.delete(one.id);
      expect((await client.volumes.list()).volumes).toEqual([]);
    });
    // The sweep meets the last points of a delete.
    await again(async () => expect(points.filter((point) => !existsSync(marker(point)))).toEqual([]));
    const { dataDir, nodeSocket } = service.facts;
    await again(() => nodeCaller(nodeSocket).call("GET", "/v1/info"));
    await again(async () => {
      for (const folder of ["pool/v", "pool/m"]) expect(readdirSync(join(dataDir, folder))).toEqual([]);
    });
  },
);
