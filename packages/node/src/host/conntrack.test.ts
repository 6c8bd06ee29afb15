import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it } from "vitest";
import { raiseFlowLimit, watchFlows } from "./conntrack.ts";

it("reports lost events, and continues", async () => {
  const said = `echo one; echo "WARNING: We have hit ENOBUFS! We are losing events." >&2; echo "Please, check" >&2; sleep 0.2; echo two`;
  const lines: string[] = [];
  let lost = 0;
  const onLost = () => lost++;
  const watching = watchFlows({ onLine: (line) => lines.push(line), onLost }, new AbortController().signal, [
    "sh",
    "-c",
    said,
  ]);
  await expect(watching).rejects.toThrow("conntrack ended: exit code 0");
  expect([lines, lost]).toEqual([["one", "two"], 1]);
});

it("raises the flow limit for so many machines, and never lowers it", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "conntrack-"));
  const file = path.join(dir, "nf_conntrack_max");
  const after = async (most: number, machines: number) => {
    await writeFile(file, `${most}\n`);
    // None of this host's settings.
    await raiseFlowLimit(machines, file, async (_setting, value) => await writeFile(file, value));
    return Number(await readFile(file, "utf8"));
  };
  expect(await after(262_144, 128)).toBe(1_638_400);
  expect(await after(262_144, 8)).toBe(262_144);
  await rm(dir, { recursive: true });
});
