import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { PartsRecord, readParts } from "./parts-record.ts";

inOwnDirectories();

test("each process is noted with its version and start, the last start of a name counts, and nothing is left", async () => {
  const file = path.join(dir, "parts.json");
  const record = new PartsRecord(file);
  const part = (pid: number) => ({ pid, version: "0.1.0", since: "2027-03-01T09:30:00.000Z" });
  await Promise.all([record.note("node", part(1)), record.note("control", part(2))]);
  await record.note("node", part(3));
  expect(await readParts(file)).toEqual({ node: part(3), control: part(2) });
  await record.remove();
  expect(await readParts(file)).toEqual({});
});
