/** A backup of a service under use is restored into another data directory: keys are accepted and paused sessions wake. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text as textOf } from "node:stream/consumers";
import { runHostCommand } from "@vivarium/kit/host-command";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client, type SessionCreate } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Ended, startVivWith } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { type Service, startService } from "../support/service.ts";

const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n >> count; sleep 0.2; done) > /dev/null 2>&1 &";

const viv = (...argv: string[]): Promise<Ended> => startVivWith({}, ...argv).ended;

/** Two services with machines, one restored from the other, and every read of what they keep. */
const LONG_MS = 720_000 * SLOWNESS;

/** Nothing is in it before the last test. */
let first: Service;
beforeAll(async () => {
  first = await startService();
});
afterAll(() => first?.stop());

/** Which of the texts a backup contains, whatever it is in. */
async function readableIn(file: string, texts: string[]): Promise<string[]> {
  const unpack = spawn("zstd", ["-dcq", file], { stdio: ["ignore", "pipe", "inherit"] });
  const folder = await mkdtemp(join(tmpdir(), "texts-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "texts"), texts.join("\n"));
  // Lines end with a zero byte, so that memory that was never written is not read as one line.
  const search = spawn("grep", ["-zaoFf", join(folder, "texts")], {
    env: { PATH: "/usr/bin:/bin", LC_ALL: "C" },
    stdio: [unpack.stdout, "pipe", "inherit"],
  });
  return [...new Set((await textOf(search.stdout)).split("\0").filter(Boolean))];
}

/** A session whose variable is in the memory of a process and on the disk, paused. */
async function pausedWith({ sessions }: Client, request: SessionCreate): Promise<string> {
  const { session_id: id } = await sessions.create(request);
  await sessions.waitUntilLive(id);
  const script = 'printf "$CANARY" > file; sync; (sleep 1000000 &) > /dev/null 2>&1';
  expect((await sessions.exec(id, { command: ["sh", "-c", script] })).exit_code).toBe(0);
  await sessions.pause(id);
  return id;
}

test("a restore that is killed while its database runs starts nothing, is taken back, and can be repeated", async () => {
  const folder = join(dirname(first.facts.dataDir), randomId(8));
  await mkdir(folder);
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const [file, other] = [join(folder, "b.tar.zst"), join(folder, "data")];
  expect((await viv("backup", "--data-dir", first.facts.dataDir, file)).code).toBe(0);

  const killed = startVivWith({}, "restore-backup", "--data-dir", other, file);
  const databases = async () => (await runHostCommand("pgrep", ["-f", `postgres -D ${other}`])).stdout;
  await eventually(
    () => expect(existsSync(join(other, "postgres/data/postmaster.pid"))).toBe(true),
    60_000,
    2,
  );
  killed.kill("SIGKILL");
  await killed.ended;
  expect(existsSync(join(other, "restore.json"))).toBe(true);
  for (const argv of [["up"], ["backup", join(folder, "c.tar.zst")]])
    expect(await viv(...argv, "--data-dir", other)).toMatchObject({
      code: 1,
      err: expect.stringContaining(`viv restore-backup --data-dir ${other} ${file}`),
    });
  const undone = await viv("restore-backup", "--undo", "--data-dir", other);
  expect(undone.code, undone.err).toBe(0);
  expect(await databases()).toBe("");
  for (const name of ["restore.json", "control", "postgres/data"])
    expect([name, existsSync(join(other, name))]).toEqual([name, false]);

  const restored = await viv("restore-backup", "--data-dir", other, file);
  expect(restored.code, restored.err).toBe(0);
  const second = await startService({ dataDir: other });
  onTestFinished(() => second.stop());
  const there = new Client({ url: second.facts.url, apiKey: first.facts.apiKey, retries: 0 });
  expect((await there.sessions.list()).sessions).toEqual([]);
});

test("a full disk is said, and leaves nothing; a damaged backup changes nothing", async () => {
  const { dataDir } = first.facts;
  const folder = join(dirname(dataDir), randomId(8));
  const small = join(folder, "small");
  await mkdir(small, { recursive: true });
  onTestFinished(async () => {
    await runHostCommand("umount", [small]);
    await rm(folder, { recursive: true, force: true });
  });
  await runHostCommand("mount", ["-t", "tmpfs", "-o", "size=4k", "tmpfs", small]);
  // A backup of an empty service is smaller than the smallest file system.
  await writeFile(join(small, "taken"), Buffer.alloc(4096, 1));
  const full = await viv("backup", "--data-dir", dataDir, join(small, "b.tar.zst"));
  expect(full).toMatchObject({ code: 1, err: expect.stringContaining("its disk is full") });
  expect(await readdir(small)).toEqual(["taken"]);
  expect((await readdir(join(dataDir, "pool"))).filter((name) => name.startsWith("."))).toEqual([]);

  const file = join(folder, "b.tar.zst");
  expect((await viv("backup", "--data-dir", dataDir, file)).code).toBe(0);
  const work = join(folder, "work");
  await mkdir(work);
  const shell = (script: string) => runHostCommand("sh", ["-ec", script], { cwd: work });
  await shell(`tar --zstd -xf ${file}`);
  await writeFile(join(work, "control/pepper"), "changed");
  await shell(`tar --zstd -cf ${file} manifest.json database.jsonl control`);
  const other = join(folder, "data");
  expect(await viv("restore-backup", "--data-dir", other, file)).toMatchObject({
    code: 1,
    err: expect.stringContaining("control/pepper is damaged"),
  });
  expect(existsSync(join(other, "control"))).toBe(false);
  expect(await viv("restore-backup", "--force", "--data-dir", dataDir, file)).toMatchObject({
    code: 1,
    err: expect.stringContaining("a service (pid"),
  });
});

test(
  "rows, keys and saved state of a service that is used are restored elsewhere, where paused sessions continue, and no secret is readable",
  async () => {
    const { url, apiKey, dataDir } = first.facts;
    const client = new Client({ url, apiKey, retries: 0 });
    const { sessions, checkpoints, volumes, artifacts, templates } = client;
    const [secret, plain] = [0, 1].map(() => `canary-${randomId()}`) as [string, string];
    const { session_id: id } = await sessions.create({ name: "kept" });
    await sessions.waitUntilLive(id);
    await sessions.exec(id, { command: ["sh", "-c", `echo kept > note; ${COUNTER}`] });
    const { id: artifact } = await client.session(id).artifacts.capture(["note"]);
    await artifacts.waitUntilReady(artifact);
    const { checkpoint_id: checkpoint } = await checkpoints.create(id);
    await sessions.pause(id);
    const { id: volume } = await volumes.create({ size_gb: 1 });
    const { session_id: live } = await sessions.create({ volume_id: volume });
    await sessions.waitUntilLive(live);
    // Synced bytes are in the copy of a volume that is in use; others may be.
    const writing =
      "echo synced > /volume/a; sync /volume/a; (while sleep 0.1; do date >> /volume/b; done) > /dev/null 2>&1 &";
    await sessions.exec(live, { command: ["sh", "-c", writing] });

    const sealed = await pausedWith(client, { secrets: { CANARY: secret } });
    const open = await pausedWith(client, { env: { CANARY: plain } });
    expect(await templates.save(sealed, { name: "tools" })).toMatchObject({ memory: false });

    const folder = join(dirname(dataDir), randomId(8));
    await mkdir(folder);
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const file = join(folder, "b.tar.zst");
    const saved = await viv("backup", "--saved-state", "--json", "--data-dir", dataDir, file);
    expect(saved.code, saved.err).toBe(0);
    expect(JSON.parse(saved.out)).toMatchObject({
      file,
      volumes: [volume],
      artifacts: [artifact],
      missing: [],
    });
    expect(JSON.parse(saved.out).snapshots).toHaveLength(5);
    expect(await readableIn(file, [secret, plain])).toEqual([plain]);
    // Everything that a service which runs has stored is whole, and said to be whose it is.
    const checked = await viv("storage", "check", "--rate", "0", "--json", "--data-dir", dataDir);
    expect(checked.code, `${checked.out}${checked.err}`).toBe(0);
    const { ok, checked: counts } = JSON.parse(checked.out);
    expect({ ok, ...counts }).toMatchObject({ ok: true, snapshot: 5, volume: 1, artifact: 1 });
    const { stored } = JSON.parse((await viv("storage", "--json", "--data-dir", dataDir)).out);
    for (const [kind, ofKind] of Object.entries({ session: id, checkpoint, volume, artifact })) {
      const found = stored.find((one: { id: string }) => one.id === ofKind);
      expect(found, ofKind).toMatchObject({ kind });
      expect(found.bytes - found.shared_bytes, ofKind).toBeGreaterThan(0);
    }
    // The service keeps running, and its live session with it.
    expect((await sessions.exec(live, { command: ["echo", "on"] })).stdout).toBe("on\n");
    expect(await viv("backup", "--data-dir", dataDir, file)).toMatchObject({
      code: 1,
      err: expect.stringContaining("exists"),
    });

    const other = join(folder, "data");
    const restored = await viv("restore-backup", "--data-dir", other, file);
    expect(restored.code, restored.err).toBe(0);
    expect(restored.out).toContain("5 saved states, 1 volumes, 1 artifacts");
    expect(await viv("restore-backup", "--data-dir", other, file)).toMatchObject({
      code: 1,
      err: expect.stringContaining("has a database and keys already"),
    });
    const again = await viv("restore-backup", "--force", "--data-dir", other, file);
    expect(again.code, again.err).toBe(0);
    expect((await readdir(other)).filter((name) => name.startsWith("control."))).toHaveLength(1);

    const second = await startService({ dataDir: other });
    onTestFinished(() => second.stop());
    const there = new Client({ url: second.facts.url, apiKey, retries: 0 });
    expect(await there.sessions.get(id)).toMatchObject({ state: "paused", name: "kept" });
    expect((await there.sessions.exec(id, { command: ["cat", "note"] })).stdout).toBe("kept\n");
    await eventually(async () => expect((await there.sessions.get(live)).state).toBe("failed"));
    const { files: [note] = [] } = await there.artifacts.get(artifact);
    if (!note) throw new Error("the artifact has no file");
    const downloaded = await Array.fromAsync(there.artifacts.download(note));
    expect(Buffer.concat(downloaded).toString()).toBe("kept\n");
    // The session that had the volume is no more, so it is free once that is noticed.
    await eventually(async () => {
      expect((await there.volumes.list()).volumes).toMatchObject([{ id: volume, attached: false }]);
    });
    const { session_id: started } = await there.sessions.create({
      from_checkpoint: checkpoint,
      volume_id: volume,
    });
    await there.sessions.waitUntilLive(started);
    const onVolume = await there.sessions.exec(started, { command: ["cat", "/volume/a"] });
    expect(onVolume.stdout).toBe("synced\n");
    const read =
      'cat file; echo; tr "\\0" "\\n" < /proc/$(pgrep -n sleep)/environ | grep CANARY; echo "$CANARY"';
    const woken = await there.sessions.exec(sealed, { command: ["sh", "-c", read] });
    expect(woken.stdout).toBe(`${secret}\nCANARY=${secret}\n${secret}\n`);
    const { session_id: booted } = await there.sessions.create({ template: "tools" });
    await there.sessions.waitUntilLive(booted);
    const onDisk = await there.sessions.exec(booted, { command: ["sh", "-c", 'cat file; echo "[$CANARY]"'] });
    expect(onDisk.stdout).toBe(`${secret}[]\n`);
    for (const one of [id, live, started, sealed, open, booted]) await there.sessions.delete(one);
    for (const one of [id, live, sealed, open]) await sessions.delete(one);
    for (const one of [there, client]) await one.templates.delete("tools");
    await checkpoints.delete(checkpoint);
    await there.checkpoints.delete(checkpoint);
  },
  LONG_MS,
);
