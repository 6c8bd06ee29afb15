/** `viv storage check`: reads everything that is stored back against its sums. */
import { InvalidArgumentError } from "commander";
import { noProgress, type Progress, progressLine } from "../../copy/progress.ts";
import { EXIT } from "../../exit-codes.ts";
import { requireRootFor } from "../../install/systemd.ts";
import { formatBytes } from "../../print/bytes.ts";
import { renderChecked } from "../../print/storage.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { checkStorage } from "../../storage/check.ts";
import { type Call, Verb } from "../verb.ts";

const MIB = 1024 ** 2;
const USUAL_MIB = 64;
/** Interval of the notes where there is no terminal to draw on. */
const NOTE_MS = 30_000;

export function storageCheckCommand(): Verb {
  return new Verb("check", ["sudo viv storage check", "sudo viv storage check --rate 200"])
    .summary("read everything that is stored back, and find what is damaged")
    .description(
      `Read saved states, baselines, volumes and artifacts back, while the service runs, and compare them with the sums that were
taken when they were stored. Volumes have none, since sessions write to them: they are only read. Prints what is damaged and of
whom, and exits with 1 then. Changes nothing. Reads at a bounded rate, and behind everything else that needs the disk.`,
    )
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--rate <mib>", "MiB that are read in a second at most; 0: no bound", parseRate, USUAL_MIB)
    .option("--json", 'print {"ok", "checked": {…}, "bytes", "damaged": [{kind, id, damages, of?}, …]}')
    .does(check);
}

async function check(call: Call<{ rate: number }>): Promise<number> {
  requireRootFor("storage check");
  const { config, terminal, options } = call;
  const now = () => performance.now();
  const isDrawn = terminal.isInteractive && config.canDraw && !options.json;
  const progress = isDrawn
    ? progressLine({ terminal, now }, "reading back")
    : noteEvery(NOTE_MS, (line) => terminal.note(line));
  const bytesPerSecond = options.rate * MIB;
  const checked = await withInterrupt(async (signal) => {
    try {
      return await checkStorage(call, { bytesPerSecond, progress, signal });
    } finally {
      progress.end();
    }
  });
  call.print(checked, renderChecked);
  return checked.ok ? EXIT.ok : EXIT.failed;
}

function noteEvery(ms: number, note: (line: string) => void): Progress {
  let [total, done] = [0, 0];
  let notedAt = performance.now();
  return {
    ...noProgress,
    expect: (bytes) => {
      total += bytes;
    },
    moved: (bytes) => {
      done += bytes;
      if (performance.now() - notedAt < ms) return;
      notedAt = performance.now();
      note(`viv: read ${formatBytes(done)} of ${formatBytes(total)}`);
    },
  };
}

function parseRate(text: string): number {
  const rate = Number(text);
  if (/^[0-9]{1,6}$/.test(text)) return rate;
  throw new InvalidArgumentError("Expected a whole number of MiB, such as 64.");
}
