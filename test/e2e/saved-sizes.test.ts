/** What `size_bytes` counts: blocks that several saved states share are stored once, and counted once. */
import { expect, test } from "vitest";
import { client, sh, withSession } from "../support/http.ts";

const MIB = 1024 * 1024;
const WRITTEN = 24 * MIB;
/** The kernel's caches go, so that only the disk holds what was written. */
const WRITE = `head -c ${WRITTEN} /dev/urandom > file; sync; echo 3 | sudo tee /proc/sys/vm/drop_caches > /dev/null`;

test("blocks that an earlier checkpoint holds are not counted again", async () => {
  await withSession(async (id) => {
    expect(await client.sessions.exec(id, { command: sh(WRITE) })).toMatchObject({ exit_code: 0 });
    const first = await client.checkpoints.create(id);
    const second = await client.checkpoints.create(id);
    // Both hold the pages of memory that have changed since the template.
    expect(first.size_bytes - second.size_bytes).toBeGreaterThan(WRITTEN / 2);

    await client.sessions.pause(id);
    const [third, fourth] = [await client.checkpoints.create(id), await client.checkpoints.create(id)];
    expect(third.size_bytes).toBeGreaterThan(0);
    expect(fourth.size_bytes).toBe(0);
    for (const { checkpoint_id } of [first, second, third, fourth])
      await client.checkpoints.delete(checkpoint_id);
  });
});
