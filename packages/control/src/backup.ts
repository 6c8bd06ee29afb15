/**
 * Program of `viv backup`, `viv restore-backup` and updates: `backup.ts dump` writes the database's rows to standard
 * output, `backup.ts load [--keep-aside restore|update] [--unless-schema NUMBER]` reads them from descriptor 3,
 * `backup.ts check` fails where that load would be refused, `backup.ts look` prints the schema and what it lacks,
 * `backup.ts try` also tries the migrations. Exits with 1 where nothing was changed, with 3 where that is not known.
 * Standard input has the database's URL, as it may hold a password, which arguments would show to everybody on the host.
 */
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { dumpRows } from "./db/dump-rows.ts";
import { checkLoad, loadRows, UncertainLoad } from "./db/load-rows.ts";
import { tryMigrations } from "./db/try-migrations.ts";

const DUMP_FD = 3;
const UNCERTAIN = 3;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { "keep-aside": { type: "string" }, "unless-schema": { type: "string" } },
});

async function main(): Promise<void> {
  const url = (await text(process.stdin)).trim();
  if (positionals[0] === "dump") return await dumpRows(url, writeLine);
  if (positionals[0] === "look" || positionals[0] === "try") {
    const trial = await tryMigrations(url, { onlyLook: positionals[0] === "look" });
    return await writeLine(JSON.stringify(trial));
  }
  const keepAside = values["keep-aside"] as "restore" | "update" | undefined;
  if (positionals[0] === "check") return await checkLoad({ url, keepAside });
  if (positionals[0] !== "load")
    throw new Error(`expected dump, look, try, check or load, got ${positionals[0]}`);
  const lines = createInterface({ input: createReadStream("", { fd: DUMP_FD }) });
  const unless = values["unless-schema"];
  const unlessSchemaIs = unless === undefined ? undefined : Number(unless);
  const loaded = await loadRows({ url, keepAside, unlessSchemaIs }, lines);
  await writeLine(JSON.stringify(loaded));
}

async function writeLine(line: string): Promise<void> {
  if (!process.stdout.write(`${line}\n`)) await once(process.stdout, "drain");
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = error instanceof UncertainLoad ? UNCERTAIN : 1;
});
