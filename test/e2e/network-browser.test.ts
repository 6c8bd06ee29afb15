/** A real browser, and a development server in a session: a change appears on the page at once, through the preview. */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startBrowser } from "../support/browser.ts";
import { eventually } from "../support/eventually.ts";
import { packModules } from "../support/pack-modules.ts";
import type { Guest } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const PORT = 5173;
const PATIENCE_MS = 120_000;
const FILES = {
  "app/index.html": `<!doctype html><h1></h1><script type="module" src="/main.js"></script>`,
  "app/main.js": `import { word } from "./word.js";
const show = (text) => { document.querySelector("h1").textContent = text; };
show(word);
import.meta.hot.accept("./word.js", (next) => show(next.word));`,
  "app/word.js": `export const word = "before";`,
  "app/vite.config.js": `export default { server: { host: "0.0.0.0", port: ${PORT}, strictPort: true } };`,
};

let network: Network;
let guest: Guest;
let browser: Browser;
let page: Page;
let previewUrl: string;
/** Resolves when the page's WebSocket to Vite is open. A change that is written earlier is sent to no page. */
const connected = Promise.withResolvers<void>();

const write = (path: string, text: string) => network.client.session(guest.id).files.write(path, text);

beforeAll(
  async () => {
    network = await startNetwork();
    browser = await startBrowser();
    guest = await network.guest();
    const { files } = network.client.session(guest.id);
    await files.upload("modules.tar.gz", new Uint8Array(packModules(["vite"])));
    for (const [path, text] of Object.entries(FILES)) await write(path, text);
    await guest.run("tar -C /workspace/app -xzf /workspace/modules.tar.gz");
    await guest.start("vite", "cd /workspace/app && exec node node_modules/vite/bin/vite.js");
    const { body } = await network.ask(`/v1/sessions/${guest.id}/expose`, { body: { port: PORT } });
    previewUrl = String(body.preview_url);
    page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(PATIENCE_MS * SLOWNESS);
    page.on("console", (message) => {
      if (message.text().includes("[vite] connected")) connected.resolve();
    });
  },
  3 * PATIENCE_MS * SLOWNESS,
);
afterAll(async () => {
  await browser?.close();
  await network?.close();
});

test("its page opens, and the address bar has no token", {
  timeout: 3 * PATIENCE_MS * SLOWNESS,
}, async () => {
  await eventually(async () => {
    const answer = await page.goto(previewUrl);
    expect(answer?.status()).toBe(200);
  }, PATIENCE_MS);
  await page.waitForFunction(`document.querySelector("h1")?.textContent === "before"`);
  expect(page.url()).not.toContain("t=");
  expect(await page.evaluate("document.cookie")).toBe("");
});

test("a changed module is shown without reloading the page", {
  timeout: 3 * PATIENCE_MS * SLOWNESS,
}, async () => {
  await connected.promise;
  await page.evaluate("window.isSamePage = true");
  await write("app/word.js", `export const word = "after";`);
  await page.waitForFunction(`document.querySelector("h1").textContent === "after"`);
  expect(await page.evaluate("window.isSamePage")).toBe(true);
});

test("another preview's page opens neither it nor its WebSocket", async () => {
  await write("other/index.html", "<p>another preview</p>");
  await guest.start("other", "cd /workspace/other && exec python3 -m http.server 8000 --bind 0.0.0.0");
  const other = await network.guest();
  await other.run("mkdir -p site && echo '<p>a stranger</p>' > site/index.html");
  await other.start("web", "cd /workspace/site && exec python3 -m http.server 8000 --bind 0.0.0.0");
  const { body } = await network.ask(`/v1/sessions/${other.id}/expose`, { body: { port: 8000 } });
  const intruder = await page.context().newPage();
  await eventually(async () => {
    const answer = await intruder.goto(String(body.preview_url));
    expect(answer?.status()).toBe(200);
  }, PATIENCE_MS);
  const { origin, host } = new URL(previewUrl);
  const fetched = await intruder.evaluate(
    `fetch("${origin}/word.js", { credentials: "include" }).then((r) => r.text(), () => "refused")`,
  );
  expect(fetched).toBe("refused");
  const socket = (url: string) =>
    `new Promise((done) => { const s = new WebSocket("${url}", "vite-hmr"); s.onopen = () => done("open"); s.onerror = () => done("refused"); })`;
  expect(await intruder.evaluate(socket(`ws://${host}/`))).toBe("refused");
});
