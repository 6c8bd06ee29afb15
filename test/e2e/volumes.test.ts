/** Volumes of sessions on real machines: a life over several sessions, and what no guest can do with one. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";

const made: string[] = [];
async function newVolume(): Promise<string> {
  const { id } = await client.volumes.create();
  made.push(id);
  return id;
}
afterAll(async () => {
  for (const id of made) await eventually(() => client.volumes.delete(id), 30_000).catch(() => {});
});

const run = async (id: string, script: string) => {
  const { stdout, stderr, exit_code } = await client.sessions.exec(id, { command: sh(script) });
  expect(exit_code, `${script}: ${stdout}${stderr}`).toBe(0);
  return stdout.trim();
};
const imageOf = (volumeId: string) => join(service.dataDir, "pool/v", volumeId, "image");

test("a dataset outlives its session, a pause and a stateless run; a second session is refused meanwhile", async () => {
  const volume_id = await newVolume();
  await withSession(
    async (id) => {
      const facts = await run(id, "stat -c %U /volume; grep ' /volume ' /proc/mounts");
      expect(facts).toMatch(/^sandbox\n\/dev\/vdb \/volume ext4 rw,nosuid,nodev,/);
      await run(id, "head -c 3000000 /dev/urandom > /volume/data; sha256sum /volume/data > /volume/sum");
      const second = await ask("/v1/sessions", { body: { volume_id } });
      expect(second).toMatchObject({ status: 409, body: { code: "conflict" } });
      // A process writes to it when the session is paused.
      await run(id, "(while sleep 0.1; do date >> /volume/log; done) > /dev/null 2>&1 &");
      await run(id, "until test -s /volume/log; do sleep 0.1; done");
      await client.sessions.pause(id);
      expect(await client.volumes.get(volume_id)).toMatchObject({ attached: true, session_id: id });
      await run(id, "cd /volume && sha256sum -c sum && test -s log");
    },
    { volume_id },
  );
  expect(await client.volumes.get(volume_id)).toMatchObject({ attached: false });
  const code = "import hashlib; print(hashlib.sha256(open('/volume/data','rb').read()).hexdigest())";
  const result = await client.run({ language: "python", code, volume_id });
  await withSession(
    async (id) => expect(await run(id, "cut -d' ' -f1 /volume/sum")).toBe(result.stdout.trim()),
    { volume_id },
  );
});

test("a full volume refuses writes, and costs the session nothing; one that has grown takes more", async () => {
  const volume_id = await newVolume();
  await withSession(
    async (id) => {
      const full = await client.sessions.exec(id, {
        command: sh("fallocate -l 900M /volume/big && dd if=/dev/zero of=/volume/more bs=1M"),
        timeout_ms: 120_000,
      });
      expect(full).toMatchObject({ exit_code: 1, stderr: expect.stringContaining("No space left") });
      await run(id, "rm /volume/more; echo fits > /volume/small; echo fine > /workspace/file");
    },
    { volume_id },
  );
  await client.volumes.grow(volume_id, 2);
  await withSession(
    async (id) => {
      expect(await run(id, "cat /volume/small; fallocate -l 800M /volume/second && echo grown")).toBe(
        "fits\ngrown",
      );
    },
    { volume_id },
  );
  expect(execFileSync("stat", ["-c", "%s", imageOf(volume_id)], { encoding: "utf8" }).trim()).toBe(
    String(2 * 2 ** 30),
  );
});

test("an image that its guest breaks is mounted by no host, refused by its next guest, and repaired from inside", async () => {
  const volume_id = await newVolume();
  await withSession(
    async (id) => {
      await run(id, "echo kept > /volume/file; sync");
      // The superblock, with the header of another format in front that names a file of the host.
      await run(
        id,
        "sudo umount /volume; printf 'QFI\\373' | sudo dd of=/dev/vdb conv=notrunc status=none; sudo dd if=/dev/urandom of=/dev/vdb bs=1024 seek=1 count=1 conv=notrunc status=none",
      );
    },
    { volume_id },
  );
  await withSession(
    async (id) => {
      expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(volume_id);
      expect(await run(id, "cat /volume/VOLUME-NOT-MOUNTED.txt")).toContain("cannot be mounted");
      const refused = await client.sessions.exec(id, { command: sh("sudo touch /volume/astray") });
      expect(refused.stderr).toContain("Read-only file system");
      await run(id, "sudo umount /volume; sudo fsck.ext4 -y -b 32768 -B 4096 /dev/vdb > /dev/null; true");
      await run(id, "sudo mount /dev/vdb /volume && grep kept /volume/file");
    },
    { volume_id },
  );
  await withSession(async (id) => expect(await run(id, "cat /volume/file")).toBe("kept"), { volume_id });
});
