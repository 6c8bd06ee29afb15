import { readFile } from "node:fs/promises";
import { expect, it, onTestFinished } from "vitest";
import { createNamespace, readLinkCounters, removeNamespace } from "./netns.ts";
import { slotOf } from "./slots.ts";

it("the host's end of an idle machine's link sends nothing on its own", async () => {
  const slot = slotOf(32_000);
  onTestFinished(() => removeNamespace(slot));
  await createNamespace(slot, "");
  const file = `/proc/sys/net/ipv6/conf/${slot.hostLink}/disable_ipv6`;
  expect((await readFile(file, "utf8")).trim()).toBe("1");
});

it("there are no link counters of a process that is gone, or of one outside a machine's namespace", () => {
  expect(readLinkCounters(2 ** 22 + 1)).toBeUndefined();
  expect(readLinkCounters(process.pid)).toBeUndefined();
});
