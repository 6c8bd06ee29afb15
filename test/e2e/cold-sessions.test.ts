/** A paused session whose saved state has left its node wakes from its archive. */
import { SnapshotList } from "@vivarium/contract/node";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { sh } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { type Service, startService } from "../support/service.ts";

const STORED_WITHIN_MS = 600_000;

let service: Service;
beforeAll(async () => {
  service = await startService({ env: { VIV_ARCHIVES: "1", VIV_ARCHIVE_NICENESS: "0" } });
});
afterAll(() => service?.stop());

test("processes and files of a session continue after its state was fetched", {
  timeout: 1_200_000,
}, async () => {
  const client = new Client({ url: service.facts.url, apiKey: service.facts.apiKey });
  const node = nodeCaller(service.facts.nodeSocket);
  const { session_id: id } = await client.sessions.create();
  const count = "i=0; while :; do i=$((i+1)); echo $i >> count; sleep 0.05; done";
  await client.sessions.exec(id, {
    command: sh(`(${count}) > /dev/null 2>&1 & head -c 3000000 /dev/urandom > file`),
  });
  const sum = async () => (await client.sessions.exec(id, { command: sh("sha256sum file") })).stdout;
  const before = await sum();
  await client.sessions.pause(id);
  await eventually(async () => {
    expect((await client.sessions.get(id)).archive).toMatchObject({ status: "complete" });
  }, STORED_WITHIN_MS);

  const { snapshots } = SnapshotList.parse((await node.call("GET", "/v1/snapshots")).body);
  const saved = snapshots.find((one) => one.snapshot_id.startsWith("pau_"));
  expect(await node.call("DELETE", `/v1/snapshots/${saved?.snapshot_id}`)).toMatchObject({ status: 204 });
  await eventually(async () => {
    expect(await client.sessions.get(id)).toMatchObject({ state: "paused", snapshot_tier: "cold" });
  }, 60_000);

  expect(await sum()).toBe(before);
  const lines = async () => {
    const { stdout } = await client.sessions.exec(id, { command: ["cat", "count"] });
    const numbers = stdout.trim().split("\n").map(Number);
    expect(numbers).toEqual(numbers.map((_, n) => n + 1));
    return numbers.length;
  };
  const seen = await lines();
  await eventually(async () => expect(await lines()).toBeGreaterThan(seen), 60_000);
  await client.sessions.delete(id);
});
