import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { dir, inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";
import { takeLock } from "../supervisor/lock.ts";

inOwnDirectories();

async function holdLock(url: string): Promise<void> {
  await mkdir(path.join(dir, "run"), { recursive: true });
  const lock = await takeLock(path.join(dir, "run", "supervisor.lock"), url);
  onTestFinished(async () => void ("release" in lock && (await lock.release())));
}

test("up --background returns when the service that was started before answers, and not sooner", async () => {
  let asked = 0;
  const server = createServer((_request, response) => {
    if (++asked < 4) respond(response, 503, { error: "not yet", code: "unavailable" });
    else respond(response, 200, { status: "ok", isolation: "kvm" });
  }).listen(0, "127.0.0.1");
  onTestFinished(() => server[Symbol.asyncDispose]());
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await holdLock(url);
  const { code, err } = await viv(url, ["up", "--background", "--data-dir", dir]);
  expect({ code, asked }).toEqual({ code: 0, asked: 4 });
  expect(err).toContain(`already serves ${dir} at ${url}`);
});

test("a wrong address is an error that names the address of the service of the data directory", async () => {
  const { url } = await serve(() => {});
  await holdLock(url);
  const file = path.join(dir, "a.py");
  await writeFile(file, "");
  const nobody = "http://127.0.0.1:9";
  expect(await viv(nobody, ["run", file])).toMatchObject({
    code: 125,
    err: expect.stringContaining(`answers at ${url}, not at ${nobody}`),
  });
});
