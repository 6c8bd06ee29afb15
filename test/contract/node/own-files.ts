/** Files that the service itself writes into a machine. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type OneMachine, refusal } from "../contracted-node.ts";

export function ownFiles(one: OneMachine): void {
  const { machineId } = one;

  describe("a file", () => {
    test("is written whole, with its parents, and replaces an existing file", async () => {
      const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7) % 256));
      await one.node.putFile(machineId, "/workspace/new/dir/data.bin", Buffer.from("old"));
      const put = await one.node.putFile(machineId, "/workspace/new/dir/data.bin", bytes);
      expect(put).toEqual({ status: 200, body: { bytes: bytes.length } });
      const sum = await one.node.exec(machineId, { argv: ["sha256sum", "data.bin"], cwd: "new/dir" });
      expect(sum.stdout.toString().slice(0, 64)).toBe(createHash("sha256").update(bytes).digest("hex"));
    });

    test("needs a path", async () => {
      expect(await one.node.putFile(machineId, "", Buffer.from("x"))).toMatchObject(refusal(400, "invalid"));
    });
  });
}
