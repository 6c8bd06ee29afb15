/** The meaning of `size_bytes`: blocks that several saved states share are stored once, and counted once. */
import { expect, test } from "vitest";
import { client, sh, withSession } from "../support/http.ts";

const MIB = 1024 * 1024;
const WRITTEN = 24 * MIB;
/** Drops the kernel's caches, so that only the disk contains the written bytes. */
const writeFrom = (device: string) =>
  sh(`head -c ${WRITTEN} ${device} > file; sync; echo 3 | sudo tee /proc/sys/vm/drop_caches > /dev/null`);

test("blocks that an earlier checkpoint holds are not counted again, and zeros take no space", async () => {
  await withSession(async (id) => {
    expect(await client.sessions.exec(id, { command: writeFrom("/dev/urandom") })).toMatchObject({
      exit_code: 0,
    });
    const first = await client.checkpoints.create(id);
    const second = await client.checkpoints.create(id);
    // Both contain the pages of memory that have changed since the template.
    expect(first.size_bytes - second.size_bytes).toBeGreaterThan(WRITTEN / 2);

    expect(await client.sessions.exec(id, { command: writeFrom("/dev/zero") })).toMatchObject({
      exit_code: 0,
    });
    const zeros = await client.checkpoints.create(id);
    // Pages of memory that they used have changed; the disk has not.
    expect(zeros.size_bytes - second.size_bytes).toBeLessThan(1.5 * WRITTEN);

    await client.sessions.pause(id);
    const [third, fourth] = [await client.checkpoints.create(id), await client.checkpoints.create(id)];
    expect(third.size_bytes).toBeGreaterThan(0);
    expect(fourth.size_bytes).toBe(0);
    for (const { checkpoint_id } of [first, second, zeros, third, fourth])
      await client.checkpoints.delete(checkpoint_id);
  });
});
