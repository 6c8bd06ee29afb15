/** `viv ssh` and `viv ssh-config`, with the system's OpenSSH client, in a real machine. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startViv, startVivWith, VIV_COMMAND, viv, vivEnvironment } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client } from "../support/http.ts";
import { endSsh } from "../support/ssh-client.ts";

const home = mkdtempSync(join(tmpdir(), "viv-ssh-"));
const env = { HOME: home };
let id: string;
const ssh = (...argv: string[]) => startVivWith({ env }, "ssh", id, ...argv).ended;

beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ env: { GREETING: "hello" } }));
  await client.sessions.waitUntilLive(id);
});
afterAll(async () => {
  await client.sessions.delete(id).catch(() => {});
  rmSync(home, { recursive: true, force: true });
});

test("viv ssh runs a command as sandbox and exits with its code", async () => {
  expect(await ssh("--", "id -un; echo $GREETING; echo aside >&2; exit 9")).toEqual({
    code: 9,
    out: "sandbox\nhello\n",
    err: "aside\n",
  });
  expect(await ssh("--", "cat > note && wc -c < note")).toMatchObject({ code: 0, out: "0\n" });
});

test("a command ends when its output has no reader any more, though its input stays open", async () => {
  const pipe = spawn("sh", ["-c", `${VIV_COMMAND} ssh ${id} yes | head -n 1`], {
    env: { ...vivEnvironment(), ...env },
    stdio: ["pipe", "pipe", "ignore"],
  });
  let out = "";
  pipe.stdout.on("data", (chunk) => {
    out += chunk;
  });
  await once(pipe, "close");
  expect(out).toBe("y\n");
  await eventually(async () => expect(await ssh("--", "pgrep -x yes")).toMatchObject({ code: 1, out: "" }));
});

test("the host key is remembered apart from the human's own, and is the same after pause and wake", async () => {
  const known = () => readFileSync(join(home, ".local/state/vivarium/known_hosts"), "utf8");
  const before = known();
  expect(before).toMatch(new RegExp(`^viv-${id} ssh-ed25519 \\S+\n$`));
  await viv("pause", id);
  expect(await ssh("true")).toEqual({ code: 0, out: "", err: "" });
  expect(known()).toBe(before);
});

test("a host key that is not the one of the first visit is refused", async () => {
  const file = join(home, ".local/state/vivarium/known_hosts");
  const right = readFileSync(file, "utf8");
  const other = execFileSync("sh", [
    "-c",
    "ssh-keygen -qt ed25519 -N '' -f \"$1\" && cut -d' ' -f1,2 \"$1.pub\"",
    "sh",
    join(home, "key"),
  ]);
  writeFileSync(file, `viv-${id} ${other}`);
  try {
    const ended = await ssh("true");
    expect(ended).toMatchObject({ code: 255, err: expect.stringContaining("verification failed") });
  } finally {
    writeFileSync(file, right);
  }
});

test("options of ssh go after the id: a port of the session on this machine", async () => {
  await client.session(id).files.write("www/index.html", "from the guest\n");
  await viv("start", id, "--name", "web", "--cwd", "www", "--", "python3", "-m", "http.server", "8000");
  const port = await freePort();
  const forward = startVivWith({ env }, "ssh", id, "--", "-N", "-L", `${port}:localhost:8000`);
  const fetched = await eventually(
    async () => await (await fetch(`http://127.0.0.1:${port}/index.html`)).text(),
    60_000,
  );
  await endSsh(forward);
  expect(fetched).toBe("from the guest\n");
  await forward.ended;
});

test("missing sessions, and a missing ssh, are explained in words", async () => {
  expect(await startVivWith({ env }, "ssh", "aaaaaaaaaaaaaaaaaaaaa").ended).toMatchObject({
    code: 125,
    err: expect.stringContaining("session not found"),
  });
  const none = await startVivWith({ env: { ...env, PATH: "/nonexistent" } }, "ssh", id).ended;
  expect(none).toMatchObject({ code: 125, err: expect.stringContaining("openssh-client") });
  expect(await startViv("tunnel", "aaaaaaaaaaaaaaaaaaaaa").ended).toMatchObject({
    code: 1,
    err: expect.stringContaining("session not found"),
  });
});

test("viv tunnel is the SSH server's bytes, and ends with its input", async () => {
  const greeting = execFileSync("sh", ["-c", `${VIV_COMMAND} tunnel ${id}.viv < /dev/null | head -c 8`], {
    env: { ...vivEnvironment(), ...env },
    encoding: "utf8",
  });
  expect(greeting).toBe("SSH-2.0-");
});
