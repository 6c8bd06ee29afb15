/** `viv doctor`: checks whether this host can run the service. */
import { examineHost } from "../doctor/examine.ts";
import { EXIT } from "../exit-codes.ts";
import { configInForce, sayContradicted } from "../install/config-in-force.ts";
import { renderFindings } from "../print/findings.ts";
import { type Call, Verb } from "./verb.ts";

export function doctorCommand(): Verb {
  return new Verb("doctor", ["sudo viv doctor", "viv doctor --json"])
    .summary("check this host")
    .description(
      `Check whether this host can run sessions, and say what each lack costs. Changes nothing.
KVM is tried by booting a guest kernel on it, which takes a few seconds. Exits with 1 when sessions cannot run.`,
    )
    .option("--data-dir <dir>", "data directory (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--images-dir <dir>", "guest kernel and templates (default: <data-dir>/pool/images)")
    .option("--json", 'print {"checks": [{name, status, found, cost?, remedy?}, …]}')
    .does(doctor);
}

async function doctor(call: Call<{ imagesDir?: string }>): Promise<number> {
  const inForce = await configInForce(call.config);
  // Root alone reads a unit's settings.
  if (process.geteuid?.() === 0) sayContradicted(call, inForce);
  // Images that an option names are looked at all the same.
  const { imagesDir } = call.options.imagesDir === undefined ? inForce.config : call.config;
  const config = { ...inForce.config, imagesDir };
  const checks = await examineHost({ ...inForce, config }, new Date());
  call.print({ checks }, () => renderFindings(checks));
  return checks.some(({ status }) => status === "fail") ? EXIT.failed : EXIT.ok;
}
