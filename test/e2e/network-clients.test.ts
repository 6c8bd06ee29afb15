/** Programs that people use inside sessions, by name and in mode allow: they work without network settings. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PUBLIC } from "../support/world/addresses.ts";
import { CA_FILE, type Guest } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import { fillRegistries, GREETING, REGISTRIES } from "../support/world/registries.ts";

const HELLO = "hello from example.com";
const ENV = [
  ...[`SSL_CERT_FILE=${CA_FILE}`, `CURL_CA_BUNDLE=${CA_FILE}`, `REQUESTS_CA_BUNDLE=${CA_FILE}`],
  ...[`NODE_EXTRA_CA_CERTS=${CA_FILE}`, `GIT_SSL_CAINFO=${CA_FILE}`, `PIP_CERT=${CA_FILE}`],
].join(" ");

/** A script and the output that shows success. `denied`: the host that the refused script connects to. */
const CLIENTS: [name: string, script: (host: string) => string, says: string][] = [
  ["curl over TLS", (host) => `curl -sS -m 20 https://${host}/`, HELLO],
  ["curl over HTTP", (host) => `curl -fsS -m 20 http://${host}/`, HELLO],
  ["curl with HTTP/2", (host) => `curl -sS -m 20 --http2 https://${host}/`, HELLO],
  [
    "fetch of Node.js",
    (host) => `node -e 'fetch("https://${host}/").then((r) => r.text()).then(console.log)'`,
    HELLO,
  ],
  [
    "a WebSocket of Node.js",
    (host) =>
      `node -e 'const s = new WebSocket("wss://${host}/socket"); s.onopen = () => s.send("${HELLO}"); s.onmessage = (m) => { console.log(m.data); process.exit(0) }; s.onerror = () => process.exit(1)'`,
    HELLO,
  ],
  [
    "a WebSocket without TLS",
    (host) =>
      `node -e 'const s = new WebSocket("ws://${host}/socket"); s.onopen = () => s.send("${HELLO}"); s.onmessage = (m) => { console.log(m.data); process.exit(0) }; s.onerror = () => process.exit(1)'`,
    HELLO,
  ],
  [
    "urllib of Python",
    (host) =>
      `python3 -c 'import urllib.request as u; print(u.urlopen("https://${host}/", timeout=20).read())'`,
    HELLO,
  ],
  [
    "requests of Python",
    (host) =>
      `python3 -c 'from pip._vendor import requests; print(requests.get("https://${host}/", timeout=20, verify="${CA_FILE}").text)'`,
    HELLO,
  ],
];

const ONE_OF_EACH = CLIENTS.filter(([name]) => ["curl over TLS", "a WebSocket without TLS"].includes(name));

const PACKAGES: [name: string, script: string][] = [
  [
    "pip",
    `rm -rf p && pip install -q --no-cache-dir --disable-pip-version-check --target p --index-url https://${REGISTRIES.pip}/simple/ greeting && PYTHONPATH=p python3 -c 'import greeting; print(greeting.text)'`,
  ],
  [
    "npm",
    `rm -rf n && mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://${REGISTRIES.npm}/ --cafile ${CA_FILE} greeting && node -e 'console.log(require("greeting"))'`,
  ],
  [
    "bun",
    `rm -rf b && mkdir b && cd b && bun add --silent --registry https://${REGISTRIES.npm}/ --cafile ${CA_FILE} greeting && bun -e 'console.log(require("greeting"))'`,
  ],
  ["git", `rm -rf g && git clone -q https://${REGISTRIES.git}/greeting.git g && cat g/greeting`],
];

let network: Network;
const guests: Record<string, Guest> = {};

beforeAll(async () => {
  network = await startNetwork();
  fillRegistries(network.world);
  await network.world.say({
    "example.com": { a: [PUBLIC.allowed] },
    "*.example.com": { a: [PUBLIC.allowed] },
    "other.example.net": { a: [PUBLIC.denied] },
  });
  const allow = ["example.com", "*.example.com"];
  [guests.deny, guests.allow] = await Promise.all([
    network.guest({ egress: { mode: "deny", allow } }),
    network.guest(),
  ]);
});
afterAll(() => network?.close());

type Mode = "deny" | "allow";
const tries = (mode: Mode, script: string) =>
  (guests[mode] as Guest).tries(`export ${ENV}; cd /workspace; ${script}`);

describe("in mode deny, through the gateway,", () => {
  test.each(CLIENTS)("%s works", async (_name, script, says) => {
    const { code, text } = await tries("deny", script("example.com"));
    expect([code, text]).toEqual([0, expect.stringContaining(says)]);
  });

  test.each(PACKAGES)("%s works", async (_name, script) => {
    const { code, text } = await tries("deny", script);
    expect([code, text]).toEqual([0, expect.stringContaining(GREETING)]);
  });
});

// Mode allow leads straight to the host: the gateway does not read what the client sends.
test.each(ONE_OF_EACH)("in mode allow %s works", async (_name, script, says) => {
  const { code, text } = await tries("allow", script("example.com"));
  expect([code, text]).toEqual([0, expect.stringContaining(says)]);
});

describe("a run with dependencies, in a machine that trusts what a company trusts,", () => {
  const TEMPLATE = "with-registries";
  const CONFIGURE = `sudo cp ${CA_FILE} /usr/local/share/ca-certificates/world.crt && sudo update-ca-certificates >/dev/null 2>&1
mkdir -p ~/.config/pip && printf '[global]\\nindex-url = https://${REGISTRIES.pip}/simple/\\n' > ~/.config/pip/pip.conf
echo 'registry=https://${REGISTRIES.npm}/' > ~/.npmrc
printf '[install]\\nregistry = "https://${REGISTRIES.npm}/"\\n' > ~/.bunfig.toml`;

  beforeAll(async () => {
    const { id } = guests.allow as Guest;
    await (guests.allow as Guest).run(CONFIGURE);
    await network.client.templates.save(id, { name: TEMPLATE });
  });

  test.each([
    ["python", "import greeting; print(greeting.text)"],
    ["node", 'console.log(require("greeting"))'],
    ["bun", 'import greeting from "greeting"; console.log(greeting)'],
  ] as const)("installs them without root, and %s finds them", async (language, code) => {
    const { status, body } = await network.ask("/v1/sessions/exec", {
      body: { language, code, dependencies: ["greeting"], template: TEMPLATE, timeout_ms: 170_000 },
    });
    expect([status, body]).toMatchObject([200, { exit_code: 0, phase: "done" }]);
    expect(body.stdout).toContain(GREETING);
    expect(body.install_ms).toBeGreaterThan(0);
  });
});

test.each(ONE_OF_EACH)(
  "%s is refused where its host is in no entry, and the host hears nothing",
  async (_name, script) => {
    await network.world.untilQuiet();
    await network.world.forget();
    const { code } = await tries("deny", script("other.example.net"));
    expect(code).not.toBe(0);
    expect(network.world.namespace.counted()).toEqual([]);
  },
);
