/**
 * The daemon and control die at every point of a volume's life: while it is made, attached, detached and deleted. The caller
 * asks again, and finds everything that was acknowledged.
 */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { type Service, startService } from "../support/service.ts";

const OF_CONTROL = [
  ...["volume_create.commit", "volume_create.made", "release.machines", "volume.given_back"],
  ...["volume_delete.commit", "volume_delete.removed"],
];
const ATTACH = ["start.journal", "start.load", "volume.held", "volume.grown", "volume.offered"];
const ATTACHED = ["volume.inserted", "volume.mounted", "start.handshake"];
const DETACH = ["stop.volume", "stop.killed", "volume.saved", "volume.released", "stop.released"];
const OF_NODE = ["volume.made", ...ATTACH, ...ATTACHED, ...DETACH, "volume.removed"];
/** The supervisor waits up to five seconds before it starts a process again that keeps dying. */
const BACK_MS = 120_000;

let service: Service;
let client: Client;
beforeAll(async () => {
  service = await startService({ env: { VIV_CRASH_AT: [...OF_CONTROL, ...OF_NODE].join(",") } });
  const { url, apiKey } = service.facts;
  client = new Client({ url, apiKey, retries: 0 });
});
afterAll(() => service?.stop());

const reached = (folder: string) =>
  readdirSync(folder).flatMap((name) => /^crashed-at-(.+)$/.exec(name)?.[1] ?? []);
const again = <T>(work: () => Promise<T>) => eventually(work, BACK_MS);
const run = async (id: string, script: string) => {
  const { stdout, stderr, exit_code } = await client.sessions.exec(id, { command: ["sh", "-c", script] });
  expect({ script, stderr, exit_code }).toMatchObject({ exit_code: 0 });
  return stdout.trim();
};

test("a volume lives through a death at each point of its life, and nothing is left of it", async () => {
  const { dataDir } = service.facts;
  const volume = await again(() => client.volumes.create());
  await again(() => client.volumes.grow(volume.id, 2));
  const { session_id: id } = await again(() => client.sessions.create({ volume_id: volume.id }));
  await again(() => run(id, "echo kept > /volume/file; sync /volume/file"));
  await again(async () => expect((await client.sessions.pause(id)).state).toBe("paused"));
  expect(await again(() => run(id, "cat /volume/file"))).toBe("kept");
  await again(() =>
    client.sessions.delete(id).catch((error) => {
      if (error.code !== "not_found") throw error;
    }),
  );
  // Another session has it now, and a third is refused.
  const next = await again(() => client.sessions.create({ volume_id: volume.id }));
  await expect(client.sessions.create({ volume_id: volume.id })).rejects.toMatchObject({ status: 409 });
  expect(await again(() => run(next.session_id, "cat /volume/file"))).toBe("kept");
  await again(() =>
    client.sessions.delete(next.session_id).catch((error) => {
      if (error.code !== "not_found") throw error;
    }),
  );
  // Attempts whose answer was lost made volumes that nobody knows.
  await again(async () => {
    for (const one of (await client.volumes.list()).volumes) await client.volumes.delete(one.id);
    expect((await client.volumes.list()).volumes).toEqual([]);
  });
  await again(async () => expect(readdirSync(join(dataDir, "pool/v"))).toEqual([]));
  expect(reached(dataDir).toSorted()).toEqual(OF_NODE.toSorted());
  expect(reached(join(dataDir, "control")).toSorted()).toEqual(OF_CONTROL.toSorted());
  expect(existsSync(join(dataDir, "pool/m")) && readdirSync(join(dataDir, "pool/m"))).toEqual([]);
});
