/** The gateway's program, which filters guests' HTTP and TLS by name, answers their DNS, and serves previews. */
import { saveCompiledCode } from "@vivarium/kit/compiled-code";
import { createLog } from "@vivarium/kit/log";
import { shutdownOnSignal } from "@vivarium/kit/shutdown";
import { startApp } from "./app.ts";
import { readConfig } from "./config.ts";
import { becomeUser, DESCRIPTORS, raiseDescriptors } from "./drop-privileges.ts";

async function main(): Promise<void> {
  const config = readConfig(process.env);
  const log = createLog("gateway", config.logLevel);
  const descriptors = await raiseDescriptors();
  if (descriptors < DESCRIPTORS) {
    log.warn(
      { descriptors, expected: DESCRIPTORS },
      "few open connections: this host lets nobody raise the limit",
    );
  }
  saveCompiledCode();
  await becomeUser(config.user);
  const app = await startApp(config, log);
  log.info({ node: config.nodeSocket }, "gateway ready");
  process.on("SIGHUP", () => app.reloadCertificate());
  shutdownOnSignal([{ name: "gateway", run: () => app.close() }], { watchStdin: config.isSupervised });
}

main().catch((error: unknown) => {
  const reason = error instanceof Error ? error.message : String(error);
  process.stderr.write(`the gateway cannot start: ${reason}\n`);
  process.exit(1);
});
