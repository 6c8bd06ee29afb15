/**
 * The guide's first example of Connections, as it is written there: its file and its commands, on a real machine, with stand-ins of the
 * APIs that it names. Their own log has the keys, and what the guide says is refused does not reach them.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { VIV_COMMAND } from "../support/command-line.ts";
import { type Service, startService } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { arrivedIn } from "../support/world/arrived.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import { fillNpmRegistry, GREETING } from "../support/world/registries.ts";

const GUIDE = join(import.meta.dirname, "../../docs/guide/connections.md");
const HOSTS = ["api.github.com", "api.openai.com", "registry.npmjs.org"] as const;
const KEYS = { GITHUB_TOKEN: "canary-github", OPENAI_API_KEY: "canary-openai", NPM_TOKEN: "canary-npm" };

let network: Network;
let service: Service;
let folder: string;
let example: { file: string; allowed: string[]; refused: string[] };

beforeAll(async () => {
  example = exampleOf(await readFile(GUIDE, "utf8"));
  network = await startNetwork();
  await network.world.say(Object.fromEntries(HOSTS.map((host) => [host, { a: [PUBLIC.allowed] }])));
  fillNpmRegistry(network.world, { host: "registry.npmjs.org", name: "acme-prices" });
  folder = await mkdtemp(join(tmpdir(), "viv-guide-"));
  await writeFile(join(folder, "agent.json"), example.file);
  const roots = join(folder, "roots.pem");
  await writeFile(roots, network.world.ca);
  service = await startService({ env: { VIV_RESOLVERS: PUBLIC.resolver, VIV_CONNECTION_ROOTS: roots } });
});
afterAll(async () => {
  if (service) await runLine("viv rm agent").catch(() => {});
  await service?.stop();
  if (folder) await rm(folder, { recursive: true });
  await network?.close();
});
beforeEach(async () => {
  await network.world.forget();
});

/** The JSON file of the guide's first example, the commands that follow it, and those that it says are refused. */
function exampleOf(guide: string): typeof example {
  const [, section = ""] = guide.split("## GitHub, OpenAI and a private npm registry");
  const [file = "", allowed = "", refused = ""] = [...section.matchAll(/^```\w+\n([\s\S]*?)^```/gm)].map(
    ([, text]) => text,
  );
  const linesOf = (text: string) => text.split("\n").filter(Boolean);
  return { file, allowed: linesOf(allowed), refused: linesOf(refused) };
}

/** Runs a line of the guide as a user's shell does. */
async function runLine(line: string): Promise<string> {
  const { url, apiKey } = service.facts;
  const { stdout } = await promisify(execFile)("sh", ["-c", `viv() { ${VIV_COMMAND} "$@"; }; ${line}`], {
    cwd: folder,
    env: { PATH: process.env.PATH, HOME: folder, VIV_URL: url, VIV_API_KEY: apiKey, ...KEYS },
  });
  return stdout;
}

test("each command reaches its API with the key, and says what it says there", async () => {
  const [create = "", github = "", openai = "", npm = "", ...more] = example.allowed;
  expect(more).toEqual([]);
  await runLine(create);

  await runLine(github);
  expect(await arrivedIn(network.world)).toEqual([
    ["GET api.github.com /repos/acme/shop/issues", "Bearer canary-github"],
  ]);
  await runLine(openai);
  expect(await arrivedIn(network.world)).toEqual([
    ["POST api.openai.com /v1/responses", "Bearer canary-openai"],
  ]);
  expect(await runLine(npm)).toContain(GREETING);
  const ofNpm = await arrivedIn(network.world);
  expect(ofNpm).toEqual([
    ["GET registry.npmjs.org /acme-prices", "Bearer canary-npm"],
    ["GET registry.npmjs.org /tarballs/acme-prices-1.0.0.tgz", "Bearer canary-npm"],
  ]);
});

test("the commands that the guide says are refused reach nothing", async () => {
  expect(example.refused).toHaveLength(2);
  for (const line of example.refused) expect(await runLine(line)).toContain("connection_rule_denied");
  expect(await arrivedIn(network.world)).toEqual([]);
});

test("no key is in the session", async () => {
  const seen = await runLine(
    "viv exec agent -- sh -c 'env; cat /proc/*/environ; grep -rs canary- /workspace /home /etc; true'",
  );
  expect(seen).toContain("SSL_CERT_FILE");
  expect(seen).not.toMatch(/canary-/);
});
