/** The system's OpenSSH client and the programs built on it, through the tunnel, in real machines. */
import { type ChildProcess, execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { ask, client, sh, withSession } from "../support/http.ts";
import { assertInstalled, endSsh, hostOf, SshClient } from "../support/ssh-client.ts";

const MIB = 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), "viv-tunnel-"));
const home = (name: string) => {
  mkdirSync(join(folder, name));
  return join(folder, name);
};

let ssh: SshClient;
let id: string;
let host: string;

const inGuest = async (script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout;
const ended = (child: ChildProcess) =>
  new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve(undefined);
    else child.once("exit", resolve);
  });

/** A client in the background that is gone when `use` is done. */
async function beside<T>(child: ChildProcess, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } finally {
    await endSsh(child);
  }
}

/** Noise that neither compresses nor repeats. */
function noise(bytes: number): Buffer {
  const all = Buffer.alloc(bytes);
  let state = 1;
  for (let at = 0; at < bytes; at += 4) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    all.writeUInt32LE(state, at);
  }
  return all;
}

function makeTree(name: string): string {
  const root = join(folder, name);
  mkdirSync(join(root, "sub/deeper"), { recursive: true });
  writeFileSync(join(root, "plain"), "plain\n");
  writeFileSync(join(root, "sub/with space"), "ä\n");
  writeFileSync(join(root, "sub/deeper/large"), noise(2 * MIB));
  return root;
}

/** The names and sums of a tree, on either side. */
const SUMS = "find . -type f -not -path './.git/*' -exec sha256sum {} + | LC_ALL=C sort -k2";
const sumsHere = (cwd: string) => execFileSync("sh", ["-c", SUMS], { cwd, encoding: "utf8" });

beforeAll(async () => {
  assertInstalled();
  ssh = new SshClient(home("client"));
  ({ session_id: id } = await client.sessions.create({ env: { FROM_SESSION: "yes" } }));
  host = hostOf(id);
  await client.sessions.waitUntilLive(id);
  await inGuest("mkdir -p www && echo from the guest > www/page");
  await client.session(id).processes.start({
    name: "web",
    command: ["python3", "-m", "http.server", "8080", "--bind", "127.0.0.1", "--directory", "www"],
  });
});

afterAll(async () => {
  await ask(`/v1/sessions/${id}`, { method: "DELETE" });
  rmSync(folder, { recursive: true, force: true });
});

test("ssh runs a command: output, errors and exit code apart, as sandbox in /workspace; a paused session wakes", async () => {
  for (const isPaused of [false, true]) {
    const known = ssh.hostKeyOf(id);
    if (isPaused) expect((await client.sessions.pause(id)).state).toBe("paused");
    const script = 'echo "$(id -un) $PWD $FROM_SESSION"; echo problem >&2; exit 7';
    expect(await ssh.ssh([host, script])).toEqual({
      status: 7,
      stdout: "sandbox /workspace yes\n",
      stderr: "problem\n",
    });
    expect((await client.sessions.get(id)).state).toBe("live");
    expect(ssh.hostKeyOf(id)).toMatch(/^AAAAC3NzaC1lZDI1NTE5/);
    if (isPaused) expect(ssh.hostKeyOf(id)).toBe(known);
  }
  expect((await ssh.ssh([host, "no-such-command"])).status).toBe(127);
});

test("stdin ends, and what the command says then still arrives", async () => {
  const input = noise(3 * MIB);
  const { stdout } = await ssh.ssh([host, "sha256sum; echo end"], { input });
  const sum = execFileSync("sha256sum", { input, encoding: "utf8" });
  expect(stdout).toBe(`${sum}end\n`);
  expect((await ssh.ssh(["-n", host, "cat; echo end"])).stdout).toBe("end\n");
});

test("a shell has a terminal, and ends with its exit code", async () => {
  const { status, stdout } = await ssh.ssh(["-tt", host], { input: 'echo "<$(tty)|$0>"; exit 9\n' });
  expect(stdout).toMatch(/<\/dev\/pts\/\d+\|-bash>/);
  expect(status).toBe(9);
});

test("sftp puts, lists, renames, gets and removes", async () => {
  const tree = makeTree("sftp tree");
  const batch = [
    "mkdir sftp",
    `put "${tree}/sub/deeper/large" sftp/one`,
    "rename sftp/one sftp/two",
    "chmod 640 sftp/two",
    "ls -1 sftp",
    `get sftp/two "${tree}/back"`,
    "rm sftp/two",
    "rmdir sftp",
  ];
  const { status, stdout, stderr } = await ssh.copy("sftp", ["-b", "-", host], { input: batch.join("\n") });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/^sftp\/two *$/m);
  expect(readFileSync(join(tree, "back")).equals(readFileSync(join(tree, "sub/deeper/large")))).toBe(true);
  expect(await inGuest("ls -d sftp 2>&1 || true")).toMatch(/No such file/);
  const missing = await ssh.copy("sftp", ["-b", "-", host], { input: "get nothing-here\n" });
  expect(missing.status).toBe(1);
  expect(missing.stderr).toMatch(/not found|No such file/);
});

test("scp -r copies a tree there and back", async () => {
  const tree = makeTree("scp-tree");
  const name = "scp-tree";
  expect(await ssh.copy("scp", ["-q", "-r", tree, `${host}:`])).toMatchObject({ status: 0, stderr: "" });
  expect(await inGuest(`cd ${name} && ${SUMS}`)).toBe(sumsHere(tree));
  const back = home("scp back");
  expect(await ssh.copy("scp", ["-q", "-r", `${host}:${name}`, back])).toMatchObject({ status: 0 });
  expect(sumsHere(join(back, name))).toBe(sumsHere(tree));
});

test("rsync -e mirrors a tree: what is new, what changed, what is gone", async () => {
  const tree = makeTree("rsync tree");
  const mirror = () => ssh.run("rsync", ["-a", "--delete", "-e", ssh.command, `${tree}/`, `${host}:mirror/`]);
  expect(await mirror()).toEqual({ status: 0, stdout: "", stderr: "" });
  rmSync(join(tree, "plain"));
  writeFileSync(join(tree, "sub/with space"), "changed\n");
  writeFileSync(join(tree, "new"), "new\n");
  expect(await mirror()).toMatchObject({ status: 0 });
  expect(await inGuest(`cd mirror && ${SUMS}`)).toBe(sumsHere(tree));
  const back = home("rsync back");
  expect(
    await ssh.run("rsync", ["-a", "-e", ssh.command, `${host}:/workspace/mirror/`, `${back}/`]),
  ).toMatchObject({ status: 0 });
  expect(sumsHere(back)).toBe(sumsHere(tree));
});

test("git clones over the tunnel, and pushes back", async () => {
  const name = "repo";
  const who = "-c user.name=A -c user.email=a@example.com";
  await inGuest(
    `git init -q -b main ${name} && cd ${name} && echo one > file && git add . && git ${who} commit -qm one`,
  );
  const env = { GIT_SSH_COMMAND: ssh.command, GIT_CONFIG_NOSYSTEM: "1" };
  const git = (...words: string[]) => ssh.run("git", [...who.split(" "), ...words], { env });
  const clone = join(folder, name);
  expect(await git("clone", "-q", `${host}:${name}`, clone)).toMatchObject({ status: 0, stderr: "" });
  expect(readFileSync(join(clone, "file"), "utf8")).toBe("one\n");
  writeFileSync(join(clone, "file"), "two\n");
  await git("-C", clone, "commit", "-qam", "two");
  expect(await git("-C", clone, "push", "-q", "origin", "main:other")).toMatchObject({ status: 0 });
  expect(await inGuest(`git -C ${name} show other:file`)).toBe("two\n");
});

test("-L and -D lead to a web server of the guest", async () => {
  const [port, socks] = [await freePort(), await freePort()];
  await beside(ssh.start(["-N", "-L", `${port}:127.0.0.1:8080`, "-D", `${socks}`, host]), async () => {
    const page = () => ssh.run("curl", ["-sS", `http://127.0.0.1:${port}/page`]);
    await eventually(async () => expect((await page()).stdout).toBe("from the guest\n"));
    const many = await Promise.all(Array.from({ length: 8 }, page));
    expect(new Set(many.map(({ stdout }) => stdout))).toEqual(new Set(["from the guest\n"]));
    const proxied = ["-sS", "--socks5-hostname", `127.0.0.1:${socks}`, "http://localhost:8080/page"];
    expect((await ssh.run("curl", proxied)).stdout).toBe("from the guest\n");
    const closed = await ssh.run("curl", ["-sS", "--socks5", `127.0.0.1:${socks}`, "http://127.0.0.1:9/"]);
    expect(closed.status).not.toBe(0);
  });
});

test("-R leads from the guest to a server here, for as long as the client stays", async () => {
  const server: Server = createServer((_request, response) => response.end("from here\n"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  try {
    await beside(
      ssh.start(["-N", "-o", "ExitOnForwardFailure=yes", "-R", `9000:127.0.0.1:${port}`, host]),
      async () => {
        const page = () => inGuest("curl -sS http://127.0.0.1:9000/ 2>&1 || true");
        await eventually(async () => expect(await page()).toBe("from here\n"));
      },
    );
    const refused = () => inGuest("curl -s http://127.0.0.1:9000/; echo $?");
    await eventually(async () => expect(await refused()).toBe("7\n"));
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("-A forwards the agent, and only then", async () => {
  const at = home("agent");
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", "forwarded-key", "-f", join(at, "key")]);
  const socket = join(at, "socket");
  const agent = ssh.spawn("ssh-agent", ["-D", "-a", socket]);
  const env = { SSH_AUTH_SOCK: socket };
  try {
    const add = () => ssh.run("ssh-add", ["-q", join(at, "key")], { env });
    await eventually(async () => expect(await add()).toMatchObject({ status: 0 }));
    const options = ["-o", "IdentityAgent=SSH_AUTH_SOCK"];
    const list = "ssh-add -l || echo none";
    expect((await ssh.ssh([...options, "-A", host, list], { env })).stdout).toMatch(
      /forwarded-key \(ED25519\)/,
    );
    expect((await ssh.ssh([...options, "-a", host, list], { env })).stdout).toBe("none\n");
  } finally {
    agent.kill();
    await ended(agent);
  }
});

test("ControlMaster shares one connection among many clients", async () => {
  const path = join(folder, "master");
  const shared = ["-o", `ControlPath=${path}`];
  await beside(ssh.start(["-M", "-N", ...shared, host]), async () => {
    const check = () => ssh.ssh([...shared, "-O", "check", host]);
    await eventually(async () => expect((await check()).status).toBe(0));
    // A client that needed a connection of its own would fail.
    const alone = [...shared, "-o", "ProxyCommand=false"];
    const all = Array.from({ length: 6 }, (_, n) =>
      ssh.ssh([...alone, host, `cat; exit ${n}`], { input: `${n}` }),
    );
    const done = await Promise.all(all);
    expect(done.map(({ status, stdout }) => [status, stdout])).toEqual(
      Array.from({ length: 6 }, (_, n) => [n, `${n}`]),
    );
    expect((await ssh.ssh([...shared, "-O", "exit", host])).status).toBe(0);
  });
  expect((await ssh.ssh([...shared, "-o", "ProxyCommand=false", host, "true"])).status).toBe(255);
});

test("an editor's way: a script on stdin starts a server that stays, and is reached by the next connection", async () => {
  const name = "server";
  const script = `cd /tmp && mkdir -p ${name} && echo ${name} > ${name}/page && cd ${name}
    nohup python3 -u -m http.server 0 --bind 127.0.0.1 > log 2>&1 < /dev/null &
    while ! grep -q port log; do sleep 0.1; done; sed -n 's/.* port \\([0-9]*\\).*/port=\\1/p' log\n`;
  const { stdout } = await ssh.ssh(["-T", host, "bash"], { input: script });
  const guestPort = /^port=(\d+)$/m.exec(stdout)?.[1];
  expect(guestPort).toBeDefined();
  // `-W` is the way of a connection that is nothing but one forwarded port.
  const request = "GET /page HTTP/1.0\r\n\r\n";
  const answer = await ssh.ssh(["-W", `127.0.0.1:${guestPort}`, host], { input: request });
  expect(answer.stdout).toMatch(new RegExp(`^HTTP/1.0 200 OK[^]*${name}\n$`));
});

describe("the bearer credential", () => {
  const anyName = (name: string) => new SshClient(home(name));

  test("is all it takes: no method of authentication is asked for", async () => {
    const { status, stderr } = await ssh.ssh(["-v", "-o", "PreferredAuthentications=none", host, "true"]);
    expect(status).toBe(0);
    expect(stderr).toMatch(/Authenticated to \S+ .*using "none"/);
  });

  test("is needed: a wrong one ends before a byte of SSH", async () => {
    const intruder = new SshClient(home("stranger"), `viv_${"x".repeat(40)}`);
    const { status, stderr } = await intruder.ssh(["-v", host, "true"]);
    expect(status).toBe(255);
    expect(stderr).toContain("unauthenticated");
    expect(stderr).not.toContain("Remote protocol version");
  });

  test("lets in as sandbox and as no other user", async () => {
    const { status, stderr } = await ssh.ssh(["-l", "root", host, "id"]);
    expect(status).toBe(255);
    expect(stderr).toContain("sandbox");
  });

  test("of an ended session is 404", async () => {
    const { status, stderr } = await anyName("nobody").ssh([hostOf("b".repeat(21)), "true"]);
    expect(status).toBe(255);
    expect(stderr).toContain("not_found");
  });
});

test("a fork has a host key of its own, and a client that knows its parent's notices", async () => {
  const { children } = await client.sessions.fork(id, { count: 1 });
  const child = children[0] as string;
  try {
    const intruder = await ssh.ssh([
      "-o",
      `HostKeyAlias=${host}`,
      "-o",
      "StrictHostKeyChecking=yes",
      hostOf(child),
      "true",
    ]);
    expect(intruder.status).toBe(255);
    expect(intruder.stderr).toMatch(/HOST IDENTIFICATION HAS CHANGED/);
    expect((await ssh.ssh([hostOf(child), "hostname"])).stdout).toBe(`${child}\n`);
    expect(ssh.hostKeyOf(child)).not.toBe(ssh.hostKeyOf(id));
    // The parent's is what it was.
    expect((await ssh.ssh(["-o", "StrictHostKeyChecking=yes", host, "true"])).status).toBe(0);
  } finally {
    await client.sessions.delete(child);
  }
});

test("a client that is killed takes its commands along, and nothing else", async () => {
  const before = ssh.start([host, "echo begun > begun; sleep 3377"]);
  const count = () => inGuest("pgrep -xfc 'sleep 3377' || true");
  await eventually(async () => expect(await count()).toBe("1\n"));
  before.kill("SIGKILL");
  await eventually(async () => expect(await count()).toBe("0\n"));
  expect((await ssh.ssh([host, "cat begun"])).stdout).toBe("begun\n");
});

test("a pause ends the connection, and a destroy too", async () => {
  await withSession(async (other) => {
    for (const end of [() => client.sessions.pause(other), () => client.sessions.delete(other)]) {
      const running = ssh.start([hostOf(other), "echo there; sleep 600"]);
      await beside(running, async () => {
        const [said] = await once(running.stdout as Readable, "data");
        expect(String(said)).toBe("there\n");
        const exited = once(running, "exit");
        await end();
        expect(await exited).toEqual([255, null]);
      });
    }
  });
});
