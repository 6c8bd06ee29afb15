/** Secrets of a session in a real machine: its programs have them, and the host keeps them nowhere but in its memory. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { filesWith } from "../support/files-with.ts";
import { descendantsOf } from "../support/host-processes.ts";
import { client, service, sh } from "../support/http.ts";
import { openTerminal } from "../support/web-socket.ts";

const CANARY = `canary-${Math.random().toString(36).slice(2)}`;
const PLAIN = `plain-${Math.random().toString(36).slice(2)}`;

let id: string;
beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({
    secrets: { TOKEN: CANARY },
    env: { MODE: PLAIN },
    on_pty_detach: "keep_live",
    command_capture: "full",
  }));
  await client.sessions.waitUntilLive(id);
});
afterAll(() => client.sessions.delete(id));

test("commands, processes and terminals have a session's secrets, and its record their names", async () => {
  // Only the sum is printed: what a program prints may be kept, on the guest's disk too.
  const script = 'printf "%s|%s" "$TOKEN" "$MODE" | sha256sum';
  const sum = `${createHash("sha256").update(`${CANARY}|${PLAIN}`).digest("hex")}  -\n`;
  expect((await client.sessions.exec(id, { command: sh(script) })).stdout).toBe(sum);
  const { processes } = client.session(id);
  await processes.start({ name: "prints", command: sh(`${script}; sleep 1000`) });
  await expect.poll(async () => (await processes.logs("prints")).stdout).toBe(sum);
  const terminal = await openTerminal(id);
  terminal.type(`${script}\n`);
  await terminal.shows(new RegExp(sum.slice(0, 64)));
  terminal.type("exit\n");
  await terminal.closed;
  const record = await client.sessions.get(id);
  expect([record.secret_names, record.env]).toEqual([["TOKEN"], { MODE: PLAIN }]);
});

test("no file of the service and no process's arguments or environment contains a secret", async () => {
  await client.sessions.exec(id, { command: ["true", CANARY] });
  // Entries are written in batches.
  await expect.poll(async () => JSON.stringify(await readAudit())).toContain("[secret]");
  const found = await filesWith([CANARY, PLAIN, id], [service.dataDir, service.logFile]);
  expect(found.filter(({ text }) => text !== id)).toEqual([]);
  expect(processesWith(CANARY)).toEqual([]);
  const described = JSON.stringify(await readAs("openapi.json"));
  for (const value of [CANARY, PLAIN]) expect(described).not.toContain(value);
  expect(described).toContain("secret_names");
  // The search finds what is there: the session's id in the database.
  expect(found.some(({ file }) => file.includes("/postgres/"))).toBe(true);
  expect(processesWith(service.dataDir)).not.toEqual([]);
});

const readAudit = () => readAs(`audit?session_id=${id}`);

async function readAs(pathname: string): Promise<unknown> {
  const headers = { authorization: `Bearer ${service.apiKey}` };
  const answer = await fetch(`${service.url}/v1/${pathname}`, { headers });
  return await answer.json();
}

/** Processes of the service with the text in their arguments or environment. */
function processesWith(text: string): number[] {
  return descendantsOf(service.pid)
    .map(({ pid }) => pid)
    .filter((pid) => ["cmdline", "environ"].some((name) => readOf(pid, name).includes(text)));
}

function readOf(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    // It has ended.
    return "";
  }
}
