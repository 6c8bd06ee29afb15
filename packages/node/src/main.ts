/** Entry point of the node daemon, which needs root. */
import { saveCompiledCode } from "@vivarium/kit/compiled-code";
import { forbidCoreFiles } from "@vivarium/kit/core-files";
import { armCrashPoint } from "@vivarium/kit/crash-point";
import { createLog } from "@vivarium/kit/log";
import { shutdownOnSignal } from "@vivarium/kit/shutdown";
import { startApp } from "./app.ts";
import { readConfig } from "./config.ts";

const config = readConfig(process.env);
const log = createLog("node", config.logLevel);
if (process.getuid?.() !== 0) {
  log.fatal("the node daemon makes namespaces and network devices and needs root; start it with sudo");
  process.exit(1);
}
armCrashPoint(config.crashAt, config.dataDir);
saveCompiledCode();
await forbidCoreFiles();
const app = await startApp(config, log);
log.info(
  { socket: config.socketPath, baselines: app.deps.baselines.all.length, qemu: app.deps.qemu.version },
  "node ready",
);
shutdownOnSignal([{ name: "node", run: () => app.close() }], { watchStdin: config.supervised });
