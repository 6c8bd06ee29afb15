/** Control plane process: configuration → app → listen → signals. */
import { existsSync } from "node:fs";
import { PAUSE_ALL_LIMIT_MS, PAUSE_ALL_SIGNAL } from "@vivarium/contract/supervision";
import { saveCompiledCode } from "@vivarium/kit/compiled-code";
import { forbidCoreFiles } from "@vivarium/kit/core-files";
import { armCrashPoint } from "@vivarium/kit/crash-point";
import { createLog } from "@vivarium/kit/log";
import { shutdownOnSignal } from "@vivarium/kit/shutdown";
import { createApp } from "./app.ts";
import { readConfig } from "./config.ts";
import { enterControlDir } from "./drop-privileges.ts";
import { ownHostsOf } from "./egress/own-hosts.ts";
import { listenForMetrics } from "./metrics/listen.ts";

const ifThere = (dir: string) => (existsSync(dir) ? dir : undefined);

async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog("control", config.logLevel);
  saveCompiledCode();
  await forbidCoreFiles();
  const objectsDir = "dir" in config.objects ? config.objects.dir : ifThere(config.localObjectsDir);
  await enterControlDir(config.controlDir, config.user, objectsDir);
  armCrashPoint(config.crashAt, config.controlDir);
  const app = await createApp({ ...config, ownHosts: ownHostsOf(config) }, log);
  // Under a supervisor, stdout is a log file, and the supervisor shows the key instead.
  if (app.mintedKey && !config.isSupervised) {
    process.stdout.write(
      `API key, shown once (also in ${config.controlDir}/bootstrap.key): ${app.mintedKey}\n`,
    );
  }
  app.startSweeps();
  await app.reconciled();
  await app.server.listen(config.listen);
  const metrics = config.metricsListen && (await listenForMetrics({ ...app, log }, config.metricsListen));
  log.info({ ...config.listen, metrics: config.metricsListen }, "control listens");
  const metricsPhase = metrics ? [{ name: "metrics", run: metrics.close }] : [];
  shutdownOnSignal([...metricsPhase, { name: "app", run: app.close }], {
    watchStdin: config.isSupervised,
    preparation: {
      name: "pause all",
      signal: PAUSE_ALL_SIGNAL,
      limitMs: PAUSE_ALL_LIMIT_MS,
      run: app.pauseAll,
    },
    onPhase: (name, outcome) => log.info({ phase: name, outcome }, "shutdown"),
  });
}

main().catch((error: unknown) => {
  const reason = error instanceof Error ? error.message : String(error);
  process.stderr.write(`control cannot start: ${reason}\n`);
  process.exit(1);
});
