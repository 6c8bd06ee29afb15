/** `viv up` is killed, by the OOM killer for example: its processes are ended or taken over by the next one. */
import { Client } from "@vivarium/sdk";
import { expect, onTestFinished, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { descendantsOf, readProcess } from "../support/host-processes.ts";
import { postgresPid, startService } from "../support/service.ts";

const GONE_MS = 90_000;

test("after kill -9 of viv up the next one takes over database and sessions, and nothing of the first is left", async () => {
  const killed = await startService();
  onTestFinished(() => killed.stop().catch(() => {}));
  const { dataDir, pid, url, apiKey } = killed.facts;
  const first = new Client({ url, apiKey, retries: 0 });
  const { session_id } = await first.sessions.create();
  await first.sessions.waitUntilLive(session_id);
  await first.sessions.exec(session_id, { command: ["sh", "-c", "echo kept > /tmp/file"] });
  const postgres = postgresPid(killed.facts);
  const daemons = descendantsOf(pid).filter(({ argv }) => argv.some((word) => word.endsWith("src/main.ts")));
  expect(daemons).toHaveLength(3);

  process.kill(pid, "SIGKILL");
  await eventually(() => {
    expect(daemons.filter((daemon) => readProcess(daemon.pid) !== undefined)).toEqual([]);
  }, GONE_MS);
  expect(readProcess(postgres)?.argv[0]).toContain("postgres");

  const next = await startService({ dataDir });
  onTestFinished(() => next.stop());
  expect(postgresPid(next.facts)).toBe(postgres);
  const { sessions } = new Client({ url: next.facts.url, apiKey, retries: 0 });
  const { stdout } = await sessions.exec(session_id, { command: ["cat", "/tmp/file"] });
  expect(stdout).toBe("kept\n");
  await sessions.delete(session_id);
});
