/** Captures of a machine that continues. */
import { SnapshotList, SnapshotStatus } from "@vivarium/contract/node";
import { describe, expect, test } from "vitest";
import { expectCounting } from "../../support/guest-counter.ts";
import { refusal } from "../contracted-node.ts";
import { type Setting, snapshotPath, statusOf } from "./setting.ts";

export function captures(at: Setting): void {
  const { liveCapture, newSnapshot, put, saved, source } = at;

  describe("a capture with continue", () => {
    test("lets the machine continue from where it was, without gap or repeat", async () => {
      expect(await statusOf(at.node, source)).toMatchObject({ state: "running" });
      await expectCounting(at.node, source);
    });

    test("is described by its own status and in the list", async () => {
      const status = SnapshotStatus.parse((await at.node.call("GET", snapshotPath(saved))).body);
      expect(status).toMatchObject({
        snapshot_id: saved,
        state: "ready",
        template: "base",
        size: "small",
        timings: { stopped: expect.any(Number) },
      });
      expect(status.bytes).toBeGreaterThan(0);
      expect(Number.isNaN(Date.parse(status.created_at))).toBe(false);
      const { snapshots } = SnapshotList.parse((await at.node.call("GET", "/v1/snapshots")).body);
      expect(snapshots).toContainEqual(status);
      expect(status).not.toHaveProperty("machine_id");
    });

    test("repeated, alone or twice at once, is the same snapshot; with another body a conflict", async () => {
      const first = await at.node.call("GET", snapshotPath(saved));
      expect(await put(saved, liveCapture)).toEqual(first);
      const twin = newSnapshot();
      const [one, other] = await Promise.all([put(twin, liveCapture), put(twin, liveCapture)]);
      expect(one).toMatchObject({ status: 200, body: { snapshot_id: twin } });
      expect(other).toEqual(one);
      const held = await put(saved, { machine_id: source, after: "hold" });
      expect(held).toMatchObject(refusal(409, "snapshot_conflict"));
      expect(await statusOf(at.node, source)).toMatchObject({ state: "running" });
      expect(await put(saved, { snapshot_id: twin })).toMatchObject(refusal(409, "snapshot_conflict"));
    });

    test("with two bodies under one name at once makes one and refuses the other", async () => {
      const id = newSnapshot();
      const answers = await Promise.all([put(id, liveCapture), put(id, { snapshot_id: saved })]);
      expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    });
  });
}
