/** `viv storage ls`: how much is taken by what. */
import { requireRootFor } from "../../install/systemd.ts";
import { renderUsage } from "../../print/storage.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { readUsage } from "../../storage/usage.ts";
import { type Call, Verb } from "../verb.ts";

export function storageLsCommand(): Verb {
  return new Verb("ls", ["sudo viv storage", "sudo viv storage ls --json"])
    .summary("how much is taken by what")
    .description(
      `Show how much of this host's disk is taken by sessions, checkpoints, templates, volumes and artifacts of all organisations, and by
the baselines of set-up. Copies share blocks: what one shares with others is said, and deleting it frees only its own.`,
    )
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option(
      "--json",
      'print {"disk", "stored": [{kind, id, bytes, shared_bytes, …}, …], "unnamed_object_bytes"}',
    )
    .does(list);
}

async function list(call: Call): Promise<void> {
  requireRootFor("storage");
  call.print(await withInterrupt((signal) => readUsage(call, signal)), renderUsage);
}
