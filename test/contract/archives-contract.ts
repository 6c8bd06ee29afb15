/** The behaviour of every implementation of contract/node that packs saved states into archives and unpacks them. */
import { randomBytes } from "node:crypto";
import { SnapshotList, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ChunksInMemory, mustPack, newSecret, pack, Space, unpack } from "../support/archive-calls.ts";
import { eventually } from "../support/eventually.ts";
import { type ContractedNode, machinePath, newMachineId, refusal, sh, startSpec } from "./contracted-node.ts";

const MIB = 1024 * 1024;
const CONTENT_BYTES = 3 * MIB;

interface ArchiveTraits {
  /** Whether a baseline is small enough to be packed, too, in the time of a test. */
  hasSmallBaselines: boolean;
}

export function archivesContract(
  makeNode: () => Promise<ContractedNode>,
  { hasSmallBaselines }: ArchiveTraits,
): void {
  let node: ContractedNode;
  const used: string[] = [];
  const machine = newMachineId();
  const saved = `pau_${randomId()}`;
  const key = newSecret();
  const archiveId = `arc_${randomId()}`;
  const chunks = new ChunksInMemory();
  const space = new Space(chunks);
  let base: string | undefined;
  let contents: string;

  const pathOf = (id: string) => `/v1/snapshots/${id}`;
  const newSnapshot = () => {
    const id = `pau_${randomId()}`;
    used.push(pathOf(id));
    return id;
  };
  const listed = async () =>
    SnapshotList.parse((await node.call("GET", "/v1/snapshots")).body).snapshots.map(
      ({ snapshot_id }) => snapshot_id,
    );
  const run = async (id: string, script: string) => {
    const { stdout, exit } = await node.exec(id, { argv: sh(script) });
    expect(exit).toMatchObject({ exit_code: 0 });
    return String(stdout);
  };
  const asked = (over: object = {}) => ({
    ...{ space, snapshotId: saved, archiveId, key, base, contents },
    ...over,
  });

  beforeAll(async () => {
    node = await makeNode();
    used.push(machinePath(machine), pathOf(saved));
    expect(await node.call("PUT", machinePath(machine), startSpec())).toMatchObject({ status: 200 });
    await run(machine, `head -c ${CONTENT_BYTES} /dev/urandom > content; sha256sum content > sum`);
    const capture = { machine_id: machine, after: "continue" };
    const made = await node.call("PUT", pathOf(saved), capture);
    expect(made).toMatchObject({ status: 200 });
    base = SnapshotStatus.parse(made.body).baseline_id;
    ({ contents } = await mustPack(node, asked()));
  });
  afterAll(async () => {
    for (const path of used) await node?.call("DELETE", path);
    await node?.close?.();
  });

  test("a snapshot names the baseline that it was made from, and when it was last used", async () => {
    const { body } = await node.call("GET", pathOf(saved));
    const { baseline_id, used_at } = SnapshotStatus.parse(body);
    expect(baseline_id).toMatch(/^bas_/);
    expect(Date.parse(used_at ?? "")).toBeLessThanOrEqual(Date.now());
  });

  test("a baseline of the node answers to its id, is not listed, and is not fetched", async () => {
    const found = await node.call("GET", pathOf(base ?? ""));
    const status = SnapshotStatus.parse(found.body);
    expect(status).toMatchObject({ snapshot_id: base, template: "base", size: "small" });
    expect(status.baseline_id).toBeUndefined();
    expect(await listed()).not.toContain(base);
    chunks.asks = 0;
    expect(await unpack(node, asked({ snapshotId: base, base: undefined }))).toEqual({ unpacked: status });
    expect(chunks.asks).toBe(0);
  });

  test("an archive is the chunks that it names, and a second one of the same sends its contents alone", async () => {
    const again = await mustPack(node, asked({ archiveId: `${archiveId}-2` }));
    expect(again.chunks.length).toBeGreaterThan(1);
    expect(again.differing_bytes).toBeGreaterThanOrEqual(CONTENT_BYTES);
    expect(again.sent_bytes).toBe(chunks.objects.get(again.contents)?.length);
    expect([...chunks.objects.keys()].toSorted()).toEqual(
      [...again.chunks, contents, again.contents].toSorted(),
    );
  });

  test("a state that was removed comes back, once, with its files", async () => {
    const { body } = await node.call("GET", pathOf(saved));
    await node.call("DELETE", pathOf(saved));
    expect(await listed()).not.toContain(saved);
    const [one, other] = await Promise.all([unpack(node, asked()), unpack(node, asked())]);
    expect(one).toMatchObject({ unpacked: { snapshot_id: saved, baseline_id: base } });
    expect(other).toEqual(one);
    const before = SnapshotStatus.parse(body);
    expect(one).toEqual({ unpacked: { ...before, used_at: expect.any(String) } });
    expect(await listed()).toContain(saved);
    chunks.asks = 0;
    expect(await unpack(node, asked())).toEqual(one);
    expect(chunks.asks).toBe(0);
    const child = newMachineId();
    used.push(machinePath(child));
    const spec = startSpec({ snapshot_id: saved });
    expect(await node.call("PUT", machinePath(child), spec)).toMatchObject({ status: 200 });
    expect(await run(child, "sha256sum -c sum")).toContain("OK");
  });

  test("what cannot be unpacked is refused with its reason, and nothing of it is listed", async () => {
    const target = newSnapshot();
    const refused = async (reason: string, over: object) => {
      const answer = await unpack(node, asked({ snapshotId: target, ...over }));
      expect(answer).toMatchObject({ refused: { code: "archive_unusable", reason } });
      expect(await listed()).not.toContain(target);
    };
    await refused("wrong_key", { key: newSecret() });
    await refused("wrong_key", { archiveId: "another" });
    await refused("wrong_base", { base: undefined });
    await refused("wrong_base", { base: saved });
    await refused("missing", { contents: randomBytes(32).toString("hex") });
    const [name = ""] = [...chunks.objects.keys()].filter((one) => one !== contents);
    const lacking = new ChunksInMemory();
    const like = (store: ChunksInMemory) => ({ space: { store, secret: space.secret } });
    const { chunks: needed } = await mustPack(node, asked({ space: { ...space, store: lacking } }));
    const [first = ""] = needed;
    for (const [each, bytes] of chunks.objects) lacking.objects.set(each, bytes);
    expect(name).not.toBe("");
    lacking.objects.delete(first);
    await refused("missing", like(lacking));
    const changed = Buffer.from(chunks.objects.get(first) ?? "");
    changed[changed.length - 20] = (changed.at(-20) ?? 0) ^ 1;
    lacking.objects.set(first, changed);
    await refused("altered", like(lacking));
    lacking.objects.set(first, chunks.objects.get(first) ?? Buffer.alloc(0));
    expect(await unpack(node, asked({ snapshotId: target, ...like(lacking) }))).toMatchObject({
      unpacked: { snapshot_id: target },
    });
  });

  test("calls that do not fit, and states and bases that are not here, are refused at once", async () => {
    const missing = `pau_${randomId()}`;
    const notThere = { refused: { code: "snapshot_not_found" } };
    expect(await pack(node, asked({ snapshotId: missing }))).toMatchObject(notThere);
    expect(await pack(node, asked({ snapshotId: "no-snapshot" }))).toMatchObject(notThere);
    const noBase = { refused: { code: "base_not_found" } };
    expect(await pack(node, asked({ base: missing }))).toMatchObject(noBase);
    expect(await unpack(node, asked({ snapshotId: missing, base: missing }))).toMatchObject(noBase);
    const invalid = { refused: { code: "invalid" } };
    expect(await pack(node, asked({ base: "no snapshot" }))).toMatchObject(invalid);
    expect(await pack(node, asked({ archiveId: "A/B" }))).toMatchObject(invalid);
    expect(await unpack(node, asked({ contents: "ab" }))).toMatchObject(invalid);
    const badKey = await pack(node, asked({ key: "a-key-that-is-none" }));
    expect(badKey).toMatchObject(invalid);
    expect(JSON.stringify(badKey)).not.toContain("a-key-that-is-none");
    expect(await node.call("POST", `${pathOf(saved)}/pack?archive_id=a`)).toMatchObject(
      refusal(400, "invalid"),
    );
  });

  test("a store that fails is a failure that passes", async () => {
    const failing = new ChunksInMemory();
    failing.onPut = () => Promise.reject(new Error("the store is full"));
    const over = { space: { store: failing, secret: space.secret } };
    expect(await pack(node, asked(over))).toMatchObject({
      refused: { code: "archive_interrupted", message: expect.stringContaining("the store is full") },
    });
    failing.onPut = () => undefined;
    expect(await mustPack(node, asked(over))).toMatchObject({ differing_bytes: expect.any(Number) });
  });

  test("a packing whose caller leaves ends, and the next one continues where it was", async () => {
    const held = new ChunksInMemory();
    const leave = new AbortController();
    held.onPut = () => {
      if (held.objects.size >= 2) leave.abort();
    };
    const over = { space: { store: held, secret: space.secret } };
    await expect(pack(node, asked(over), leave.signal)).rejects.toThrow();
    const there = [...held.objects.keys()];
    expect(there.length).toBeGreaterThanOrEqual(2);
    const sent: string[] = [];
    held.onPut = (name) => void sent.push(name);
    const { chunks: needed } = await mustPack(node, asked(over));
    expect(needed).toEqual(expect.arrayContaining(there));
    expect(sent.filter((name) => there.includes(name))).toEqual([]);
  });

  test("a delete ends the unpacking of what it deletes", async () => {
    const target = newSnapshot();
    const slow = new ChunksInMemory();
    const { promise: isAsked, resolve: noteAsk } = Promise.withResolvers<void>();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const store = Object.assign(slow, {
      get: async (name: string) => {
        noteAsk();
        await released;
        return chunks.objects.get(name) ?? Buffer.alloc(0);
      },
    });
    const unpacking = unpack(
      node,
      asked({ snapshotId: target, space: { store, secret: space.secret } }),
    ).catch((error: unknown) => ({ error }));
    await isAsked;
    expect(await node.call("DELETE", pathOf(target))).toMatchObject({ status: 204 });
    release();
    expect(await unpacking).not.toHaveProperty("unpacked");
    await eventually(async () => expect(await listed()).not.toContain(target));
  });

  test.runIf(hasSmallBaselines)("a baseline is packed under its id, without a base", async () => {
    const packed = await mustPack(node, asked({ snapshotId: base, base: undefined, archiveId: "baseline" }));
    expect(packed.differing_bytes).toBeGreaterThan(0);
    // It is here already, so nothing is fetched.
    const again = { snapshotId: base, base: undefined, archiveId: "baseline", contents: packed.contents };
    expect(await unpack(node, asked(again))).toMatchObject({ unpacked: { snapshot_id: base } });
  });
}
