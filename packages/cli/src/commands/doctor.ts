import { Command } from "commander";
import { examplesHelp } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import type { Context } from "../context.ts";
import { examineHost } from "../doctor/examine.ts";
import { EXIT } from "../exit-codes.ts";
import { renderFindings } from "../print/findings.ts";

interface DoctorOptions {
  dataDir?: string;
  imagesDir?: string;
  json?: boolean;
}

export function doctorCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return new Command("doctor")
    .summary("check this host")
    .description(
      `Check whether this host can run sessions, and say what each lack costs. Changes nothing.
KVM is tried by booting a guest kernel on it, which takes a few seconds. Exits with 1 when sessions cannot run.`,
    )
    .option("--data-dir <dir>", "data directory (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--images-dir <dir>", "guest kernel and templates (default: <data-dir>/pool/images)")
    .option("--json", 'print {"checks": [{name, status, found, cost?, remedy?}, …]}')
    .addHelpText("after", examplesHelp(["sudo viv doctor", "viv doctor --json"]))
    .action((options: DoctorOptions) => run(doctor(context, options)));
}

async function doctor({ config, terminal }: Context, options: DoctorOptions): Promise<number> {
  const { dataDir, imagesDir } = withOptions(config, { ...options });
  const checks = await examineHost({ dataDir, imagesDir, now: new Date() });
  terminal.out(options.json ? JSON.stringify({ checks }) : renderFindings(checks));
  return checks.some(({ status }) => status === "fail") ? EXIT.failed : EXIT.ok;
}
