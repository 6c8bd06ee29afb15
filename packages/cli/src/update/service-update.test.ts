import { mkdir, symlink, utimes, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { expect, onTestFinished, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readConfig } from "../config.ts";
import type { Holder } from "../supervisor/lock.ts";
import type { Terminal } from "../terminal.ts";
import { findSavedRows, isUp, waitForAnswer, waitUntilServes } from "./service-update.ts";

inOwnDirectories();

const SINCE = "2027-03-01T09:30:00.000Z";

async function addRows(name: string, at: string): Promise<string> {
  const file = path.join(dir, name);
  await writeFile(file, "");
  await utimes(file, new Date(at), new Date(at));
  return file;
}

test("the rows to put back are those of the lowest schema that were saved since the update began", async () => {
  await addRows("rows-0016-20270301T092959000.jsonl", "2027-03-01T09:29:59Z");
  const first = await addRows("rows-0017-20270301T093001000.jsonl", "2027-03-01T09:30:01Z");
  await addRows("rows-0018-20270301T093005000.jsonl", "2027-03-01T09:30:05Z");
  await addRows("rows-0015-20270301T093005000.jsonl.tmp", "2027-03-01T09:30:05Z");
  await addRows("pepper", "2027-03-01T09:30:05Z");
  expect(await findSavedRows(dir, SINCE)).toBe(first);
});

test("a link of such a name, which control's user may make, counts for nothing, wherever it leads", async () => {
  const first = await addRows("rows-0017-20270301T093001000.jsonl", "2027-03-01T09:30:01Z");
  for (const [schema, target] of [
    ["0015", first],
    ["0016", "/nowhere"],
  ] as const)
    await symlink(target, path.join(dir, `rows-${schema}-20270301T093001000.jsonl`));
  expect(await findSavedRows(dir, "2020-01-01T00:00:00Z")).toBe(first);
});

test("a backup that has the data directory is no service that answers", async () => {
  const { config, terminal } = await service(() => true);
  await writeFile(
    path.join(dir, "run/supervisor.lock"),
    JSON.stringify({ ...identify(process.pid), url: "viv backup", command: "viv backup" }),
  );
  expect(await waitForAnswer(config, terminal, 0)).toBe(false);
});

test("an update that has changed no schema has none", async () => {
  await addRows("rows-0016-20270301T092959000.jsonl", "2027-03-01T09:29:59Z");
  expect(await findSavedRows(dir, SINCE)).toBeUndefined();
});

/** A service of the data directory whose health says what `answer` returns: false is 503. */
async function service(answer: () => boolean | Promise<boolean>) {
  const server = createServer(async (_, response) => {
    const isHealthy = await answer();
    response.writeHead(isHealthy ? 200 : 503, { "content-type": "application/json" });
    response.end(JSON.stringify({ status: "ok", isolation: "kvm" }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const self = identify(process.pid);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await mkdir(path.join(dir, "run"), { recursive: true });
  await writeFile(path.join(dir, "run/supervisor.lock"), JSON.stringify({ ...self, url }));
  const notes: string[] = [];
  const terminal = { note: (line: string) => void notes.push(line) } as Terminal;
  return { config: readConfig({ VIV_DATA_DIR: dir }), terminal, notes };
}

test.each([
  ["active", false, true],
  ["activating", false, true],
  ["deactivating", false, true],
  ["", false, true],
  ["inactive", false, false],
  ["failed", false, false],
  ["inactive", true, true],
])(
  "a unit that is %j, with its data directory taken: %s, has a version to go back to: %s",
  (active, taken, up) => {
    expect(isUp({ active }, taken ? ({} as Holder) : undefined)).toBe(up);
  },
);

test("a service that is slow to answer is waited for, and one that does not answer until the limit does not count", async () => {
  let asked = 0;
  const slow = await service(() => ++asked > 2);
  expect(await waitForAnswer(slow.config, slow.terminal)).toBe(true);
  expect(slow.notes).toEqual([expect.stringContaining("waiting up to 30 s")]);
  const silent = await service(() => false);
  expect(await waitForAnswer(silent.config, silent.terminal, 1)).toBe(false);
});

test("a version whose gateway is started again and again does not serve, though it answers", async () => {
  const long = { pid: process.pid, version: "new", since: "2027-03-01T09:30:00Z" };
  let starts = 0;
  const { config } = await service(async () => {
    const parts = { supervisor: long, node: long, control: long };
    // No process has such a number.
    const gateway = { ...long, pid: 2 ** 30 + starts++ };
    await writeFile(path.join(dir, "run/parts.json"), JSON.stringify({ ...parts, gateway }));
    return true;
  });
  await expect(waitUntilServes(config, "new")).rejects.toThrow("gateway of new ends again and again");
  await waitUntilServes(config, undefined);
});
