import { writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readJournal } from "./journal.ts";

inOwnDirectories();

test.each([
  '{"format":1,',
  "",
  '{"format":1}',
  '{"phase":"later","before":{"unit":"a"},"after":{"unit":"b"}}',
])("a journal that is damaged is refused with the name of its file: %j", async (text) => {
  const file = path.join(dir, "update.json");
  await writeFile(file, text);
  await expect(readJournal(file)).rejects.toThrow(`${file}, the journal of an update, is damaged`);
  await expect(readJournal(file)).rejects.toMatchObject({ hint: expect.stringContaining("Remove the file") });
});
