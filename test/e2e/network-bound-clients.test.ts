/**
 * Programs in Go, Java and Python, and a gRPC client, on a real machine with Connections: with nothing configured each calls a bound
 * origin, the origin's log has the credential, and another path and another origin get none.
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { packModules } from "../support/pack-modules.ts";
import { type Service, startService } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { arrivedIn } from "../support/world/arrived.ts";
import { CA_FILE, Guest } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const ROOT = join(import.meta.dirname, "../..");
const API = "api.example.com";
const OTHER = "other.example.com";
const GRPC = "grpc.example.com";
const OTHER_GRPC = "other-grpc.example.com";
const SECRET = `canary-${Math.random().toString(36).slice(2)}`;
const BEARER = `Bearer ${SECRET}`;
const authentication = { type: "bearer" as const, secret: SECRET };
/** An address that gets the credential, one that no rule allows, and one of another origin. */
const ADDRESSES = [`https://${API}/`, `https://${API}/v2`, `https://${OTHER}/`].join(" ");
/** How long one command may take that would take a minute: installing Java in an emulated guest. */
const LONG_MS = 300_000;
const PATIENCE_MS = LONG_MS * SLOWNESS;
/** In an emulated guest the better compiler of Java costs more than it gains. */
const JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

let network: Network;
let service: Service;
let client: Client;
let folder: string;
let programs: string;
let guest: Guest;

beforeAll(async () => {
  programs = execFileSync(join(ROOT, "scripts/make-clients"), { encoding: "utf8" }).trim();
  network = await startNetwork();
  await network.world.say({
    ...{ [API]: { a: [PUBLIC.allowed] }, [OTHER]: { a: [PUBLIC.second] } },
    ...{ [GRPC]: { a: [PUBLIC.grpc] }, [OTHER_GRPC]: { a: [PUBLIC.grpc] } },
  });
  folder = await mkdtemp(join(tmpdir(), "viv-bound-clients-"));
  const roots = join(folder, "roots.pem");
  await writeFile(roots, network.world.ca);
  service = await startService({ env: { VIV_RESOLVERS: PUBLIC.resolver, VIV_CONNECTION_ROOTS: roots } });
  client = new Client({ url: service.facts.url, apiKey: service.facts.apiKey, retries: 0 });
  const { session_id } = await client.sessions.create({
    connections: [
      { name: "api", origin: `https://${API}`, authentication, allow: { methods: ["GET"], paths: ["/"] } },
      {
        ...{ name: "grpc", origin: `https://${GRPC}`, authentication },
        allow: { methods: ["POST"], paths: ["/world.Greeter/Greet", "/world.Greeter/Count"] },
      },
    ],
  });
  await client.sessions.waitUntilLive(session_id);
  guest = new Guest(client, session_id);
  await guest.equip(network.world.ca);
  await guest.run(TRUST_THE_WORLD);
}, PATIENCE_MS);
afterAll(async () => {
  if (guest) await client.sessions.delete(guest.id).catch(() => {});
  await service?.stop();
  if (folder) await rm(folder, { recursive: true });
  await network?.close();
});
beforeEach(async () => {
  await network.world.forget();
});

/**
 * The guest trusts the origin that is not bound, as it trusts the internet's: by the bundle, and by what Java is given when it is
 * installed. No tool of the guest does it, since that would also spread the authority of the session.
 */
const TRUST_THE_WORLD = `sudo cp ${CA_FILE} /usr/local/share/ca-certificates/world.crt
sudo ln -s /usr/local/share/ca-certificates/world.crt /etc/ssl/certs/world.pem
sudo sh -c 'cat ${CA_FILE} >> /etc/ssl/certs/ca-certificates.crt'`;

const upload = (name: string) => client.session(guest.id).files.upload(name, { file: join(programs, name) });
const arrived = () => arrivedIn(network.world);

/** Runs a command as a process, since a slow guest may need more time for it than one request may take. */
async function finish(name: string, command: string): Promise<{ code: number; text: string }> {
  const [output, code] = [`/workspace/${name}.output`, `/workspace/${name}.code`];
  await guest.start(name, `cd /workspace; (${command}) > ${output} 2>&1; echo $? > ${code}`);
  const ended = await eventually(() => guest.run(`cat ${code}`), LONG_MS, 1_000);
  return { code: Number(ended), text: await guest.run(`cat ${output}`) };
}

/** Runs a client with the three addresses. */
async function expectThree(name: string, command: string): Promise<void> {
  const { code, text } = await finish(name, `${command} ${ADDRESSES}`);
  expect([code, text]).toEqual([0, expect.stringContaining(`200 hello from ${API}`)]);
  expect(text).toMatch(/^403 .*connection_rule_denied/m);
  expect(text).toContain(`200 hello from ${OTHER}`);
  expect(await arrived()).toEqual([
    [`GET ${API} /`, BEARER],
    [`GET ${OTHER} /`, undefined],
  ]);
}

test(
  "a program in Go with its own TLS finds the authority, and only what the rules allow gets the credential",
  async () => {
    await upload("get");
    await guest.run("chmod +x /workspace/get");
    await expectThree("go", "./get");
  },
  PATIENCE_MS,
);

describe("in Python, which brings roots of its own,", () => {
  beforeAll(async () => {
    await upload("python.tar");
    await client.session(guest.id).files.upload("get.py", { file: join(ROOT, "test/clients/get.py") });
    await guest.run("mkdir /workspace/python && tar -C /workspace/python -xf /workspace/python.tar");
  }, PATIENCE_MS);

  test.each(["httpx", "requests"])(
    "%s does",
    async (name) => {
      await expectThree(name, `PYTHONPATH=python python3 get.py ${name}`);
    },
    PATIENCE_MS,
  );
});

describe("gRPC", () => {
  beforeAll(async () => {
    const { files } = client.session(guest.id);
    await files.upload("modules.tar.gz", new Uint8Array(packModules(["@grpc/grpc-js"])));
    await files.upload("greet.mjs", { file: join(ROOT, "test/clients/greet.mjs") });
    await guest.run("tar -C /workspace -xzf /workspace/modules.tar.gz");
  }, PATIENCE_MS);

  test(
    "answers a call and a stream of answers with the credential; a method that no rule allows does not leave",
    async () => {
      const { code, text } = await guest.tries(
        `cd /workspace && node greet.mjs ${GRPC} Greet Count Hidden`,
        PATIENCE_MS,
      );
      expect([code, text]).toEqual([
        0,
        expect.stringMatching(/^hello guest\nnumber 1\nnumber 2\nnumber 3\nfailed: PERMISSION_DENIED/),
      ]);
      expect(await arrived()).toEqual([
        [`POST ${GRPC} /world.Greeter/Greet`, BEARER],
        [`POST ${GRPC} /world.Greeter/Count`, BEARER],
      ]);
    },
    PATIENCE_MS,
  );

  test(
    "of another origin gets no credential",
    async () => {
      // Node trusts one file besides its own roots: here the bundle, which has both authorities.
      const command = `NODE_EXTRA_CA_CERTS=$SSL_CERT_FILE node greet.mjs ${OTHER_GRPC} Greet`;
      expect(await guest.run(`cd /workspace && ${command}`, PATIENCE_MS)).toBe("hello guest\n");
      expect(await arrived()).toEqual([[`POST ${OTHER_GRPC}:443 /world.Greeter/Greet`, undefined]]);
    },
    PATIENCE_MS,
  );
});

describe("Java that is installed after the session was made", () => {
  const java = `java ${JAVA_OPTIONS} -cp /workspace Get`;

  beforeAll(async () => {
    await upload("java.tar");
    await upload("Get.class");
    const install = `sudo env JAVA_TOOL_OPTIONS='${JAVA_OPTIONS}' dpkg --install --force-unsafe-io java/*.deb`;
    const { code, text } = await finish("install", `mkdir java && tar -C java -xf java.tar && ${install}`);
    if (code !== 0) throw new Error(text);
  }, 2 * PATIENCE_MS);

  test(
    "finds the authority in its keystore",
    async () => {
      await expectThree("java", java);
    },
    PATIENCE_MS,
  );

  test(
    "has it again after a pause if its keystore has lost it",
    async () => {
      const keytool = `sudo env JAVA_TOOL_OPTIONS='${JAVA_OPTIONS}' keytool -cacerts -storepass changeit`;
      await guest.run(`${keytool} -delete -alias debian:vivarium-session.pem`, PATIENCE_MS);
      await client.sessions.pause(guest.id);
      await expectThree("java-again", java);
    },
    PATIENCE_MS,
  );
});
