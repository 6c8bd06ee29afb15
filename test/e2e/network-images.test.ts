/**
 * Images of several kinds, imported from a real registry: whatever they lack, their sessions do what sessions do. Each takes a
 * minute or two, so that only the long test has all kinds.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { askAt } from "../support/asking.ts";
import { startVivWith } from "../support/command-line.ts";
import { KINDS } from "../support/kinds-of-images.ts";
import { type Registries, startRegistries } from "../support/registries.ts";
import { type Service, startService } from "../support/service.ts";
import { openTerminal } from "../support/web-socket.ts";

const LIMIT_MS = 900_000 * SLOWNESS;
/** With the host keys of these sessions. */
const home = mkdtempSync(join(tmpdir(), "viv-images-"));
const kinds = Object.entries(KINDS).slice(0, size({ ci: 2, full: 4 }));
const nameOf = (kind: string) => kind.replaceAll(/\W+/g, "-").toLowerCase();

let registries: Registries;
let service: Service;

beforeAll(async () => {
  const images = kinds.map(([kind, { image }]) => [`team/${nameOf(kind)}`, image()]);
  registries = await startRegistries(Object.fromEntries(images));
  service = await startService({ env: registries.env });
}, LIMIT_MS);
afterAll(async () => {
  await service?.stop();
  await registries?.close();
  rmSync(home, { recursive: true, force: true });
});

async function viv(...argv: string[]): Promise<string> {
  const { url, apiKey } = service.facts;
  const { code, out, err } = await startVivWith(
    { env: { VIV_URL: url, VIV_API_KEY: apiKey, HOME: home } },
    ...argv,
  ).ended;
  expect({ code, err }, argv.join(" ")).toEqual({ code: 0, err: expect.any(String) });
  return out.trim();
}

test.each(kinds)(
  "an image %s is imported, and has exec, files, terminals, SSH, pause and fork",
  async (kind, { given, uid, program, bundle }) => {
    const name = nameOf(kind);
    await viv("template", "import", "--name", name, `${registries.open}/team/${name}:1`);
    const log = await viv("template", "log", name);
    expect(log.includes("the image has no shell; it got one"), log).toBe(given.includes("shell"));
    expect(log.includes("has no certificates to trust; it got"), log).toBe(given.includes("certificates"));

    const session = await viv("create", "--template", name, "--wait");
    const sh = (script: string, id = session) => viv("exec", id, "--", "sh", "-c", script);
    expect(await viv("exec", session, "--", ...program.argv)).toBe(program.prints);
    expect(await sh(`read -r first < ${bundle.path}; echo "$first; $SHELL"; echo x > /tmp/x`)).toMatch(
      new RegExp(`^${bundle.begins}; /bin/(ba)?sh$`),
    );
    await checkFiles(session, sh);
    await checkTerminal(session);
    expect(await viv("ssh", session, "--", "echo over ssh: $USER")).toBe("over ssh: sandbox");
    await viv("pause", session);
    const owner = `[ -O note ] && read -r text < note && echo "$text"`;
    expect(await sh(owner)).toBe("kept");
    const fork = await viv("fork", session);
    expect(await sh(`${owner}; echo in the fork > note`, fork)).toBe("kept");
    expect(await sh(owner)).toBe("kept");
    expect(await numberIn(session)).toBe(uid);
    for (const id of [fork, session]) await viv("rm", id);
  },
  LIMIT_MS,
);

async function checkFiles(session: string, sh: (script: string) => Promise<string>): Promise<void> {
  const files = `/v1/sessions/${session}/files`;
  const note = { path: "/workspace/note", content: "kept\n" };
  expect((await askAt(service.facts, files, { method: "PUT", body: note })).status).toBe(200);
  expect(await sh("echo made > made")).toBe("");
  expect((await askAt(service.facts, `${files}?path=/workspace/made`)).body).toMatchObject({
    content: "made\n",
  });
}

async function checkTerminal(session: string): Promise<void> {
  const terminal = await openTerminal(session, "", service.facts);
  terminal.type("echo $((6 * 7)) in $PWD\n");
  await terminal.shows(/42 in \/workspace/, 60_000 * SLOWNESS);
  terminal.type("exit 3\n");
  await terminal.closed;
  expect(terminal.exitCode).toBe(3);
}

/** By the kernel: an image may have no program that says it. */
async function numberIn(session: string): Promise<number> {
  const script =
    "while read -r key real rest; do [ $key = Uid: ] && echo $real; done < /proc/$$/status; true";
  return Number(await viv("exec", session, "--", "sh", "-c", script));
}
