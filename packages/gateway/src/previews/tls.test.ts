import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, type TLSSocket } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

let folder: string;
let gateway: Gateway;
let guest: Guest;
let preview: Exposed;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "previews-tls-"));
  makePair("first");
  makePair("second");
  cpSync(join(folder, "first.crt"), join(folder, "tls.crt"));
  cpSync(join(folder, "first.key"), join(folder, "tls.key"));
  const tls = { certFile: join(folder, "tls.crt"), keyFile: join(folder, "tls.key") };
  gateway = await startGateway({ secure: true, tls });
  guest = await startGuest((_, response) => response.end("over TLS"));
  preview = expose(gateway, guest);
});

afterAll(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
  rmSync(folder, { recursive: true });
});

function makePair(name: string): void {
  execFileSync(
    "openssl",
    [
      ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
      ["-subj", `/CN=${name}`, "-keyout", join(folder, `${name}.key`), "-out", join(folder, `${name}.crt`)],
    ].flat(),
    { stdio: "ignore" },
  );
}

function subject(): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({ port: gateway.port, rejectUnauthorized: false }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

function get(path: string): Promise<{ status?: number; body: string; setCookie?: string[] }> {
  return new Promise((resolve, reject) => {
    request(
      { port: gateway.port, path, headers: { host: preview.host }, rejectUnauthorized: false, agent: false },
      (answer) => {
        let body = "";
        answer.on("data", (chunk) => {
          body += chunk;
        });
        answer.on("end", () =>
          resolve({ status: answer.statusCode, body, setCookie: answer.headers["set-cookie"] }),
        );
      },
    )
      .on("error", reject)
      .end();
  });
}

describe("previews over TLS", () => {
  test("are the same previews, and the guest learns of https", async () => {
    const reply = await get(`/?t=${preview.token}`);
    expect(reply.body).toBe("over TLS");
    expect(reply.setCookie?.[0]).toMatch(/^__Host-viv_pv=.*; Secure$/);
    expect(guest.heads.at(-1)).toContain("x-forwarded-proto: https\n");
    expect((await get("/")).status).toBe(404);
  });

  test("cut what a new version of the route does not let in", async () => {
    const own = await startGuest((_, response) => response.write("begun"));
    const { route, host, token } = expose(gateway, own);
    const outgoing = request({
      port: gateway.port,
      path: `/?t=${token}`,
      headers: { host },
      rejectUnauthorized: false,
      agent: false,
    });
    const cut = new Promise((resolve) =>
      outgoing.on("response", (answer) => answer.on("error", resolve).resume().once("data", next)),
    );
    const next = () => gateway.tables.putRoute({ ...route, version: 2 });
    outgoing.on("error", () => undefined).end();
    await cut;
    await gateway.previews.settled();
    expect(outgoing.destroyed).toBe(true);
    await stopGuest(own);
  });

  test("use a new certificate as soon as its files are there, and keep the old one while they do not fit", async () => {
    expect(await subject()).toBe("first");
    writeFileSync(join(folder, "tls.crt"), "no certificate");
    gateway.previews.reloadCertificate();
    expect(await subject()).toBe("first");
    renameSync(join(folder, "second.key"), join(folder, "tls.key"));
    renameSync(join(folder, "second.crt"), join(folder, "tls.crt"));
    while ((await subject()) !== "second") await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await get(`/?t=${preview.token}`)).body).toBe("over TLS");
  });

  test("are not begun with a key of another certificate", async () => {
    makePair("third");
    const tls = { certFile: join(folder, "tls.crt"), keyFile: join(folder, "third.key") };
    await expect(startGateway({ secure: true, tls })).rejects.toThrow(/key/i);
  });
});
