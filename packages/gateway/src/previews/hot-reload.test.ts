import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer, type HttpServer, type ViteDevServer } from "vite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import {
  type Exposed,
  expose,
  type Gateway,
  get,
  NAVIGATION,
  startGateway,
} from "../../test-support/previews.ts";

let folder: string;
let vite: ViteDevServer;
let gateway: Gateway;
let preview: Exposed;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "previews-vite-"));
  writeFileSync(join(folder, "index.html"), `<script type="module" src="/main.js"></script>`);
  writeFileSync(join(folder, "main.js"), `import { word } from "./word.js"; import.meta.hot.accept(); word;`);
  writeFileSync(join(folder, "word.js"), `export const word = "before";`);
  vite = await createServer({
    root: folder,
    configFile: false,
    logLevel: "silent",
    cacheDir: join(folder, "cache"),
    server: { host: "127.78.0.1", port: 0 },
  });
  await vite.listen();
  gateway = await startGateway();
  const { address, port } = (vite.httpServer as HttpServer).address() as AddressInfo;
  preview = expose(gateway, { address, port });
});

afterAll(async () => {
  await gateway.previews.close();
  await vite.close();
  rmSync(folder, { recursive: true });
});

describe("a development server behind a preview", () => {
  test("notifies the browser's page of a change, which fetches the module anew", async () => {
    const { host, token } = preview;
    const entry = await get(gateway, host, `/?t=${token}`, { headers: NAVIGATION });
    const cookie = entry.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const page = await get(gateway, host, "/", { headers: { ...NAVIGATION, cookie } });
    expect(page.body).toContain("/@vite/client");
    expect((await get(gateway, host, "/word.js", { headers: { cookie } })).body).toContain("before");
    await get(gateway, host, "/main.js", { headers: { cookie } });
    const client = (await get(gateway, host, "/@vite/client", { headers: { cookie } })).body;
    const hotToken = /const wsToken = "([^"]+)"/.exec(client)?.[1] ?? "";
    const socket = new WebSocket(`ws://127.0.0.1:${gateway.port}/?token=${hotToken}`, "vite-hmr", {
      headers: { host, cookie },
      origin: `http://${host}`,
    });
    await expect.poll(() => vite.watcher.getWatched()[folder]).toContain("word.js");
    const messages: { type: string; updates?: { path: string; timestamp: number }[] }[] = [];
    const changed = new Promise<void>((resolve, reject) => {
      socket.on("error", reject);
      socket.on("message", (data) => {
        const message = JSON.parse(String(data));
        messages.push(message);
        if (message.type === "connected")
          writeFileSync(join(folder, "word.js"), `export const word = "after";`);
        if (message.type === "update") resolve();
      });
    });
    await changed;
    const update = messages.find(({ type }) => type === "update")?.updates?.[0];
    expect(update?.path).toBe("/main.js");
    const again = await get(gateway, host, `/main.js?t=${update?.timestamp}`, { headers: { cookie } });
    expect(again.body).toContain(`/word.js?t=${update?.timestamp}`);
    expect(
      (await get(gateway, host, `/word.js?t=${update?.timestamp}`, { headers: { cookie } })).body,
    ).toContain("after");
    socket.terminate();
  });
});
