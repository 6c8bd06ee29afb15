/** Files and named processes of sessions on the command line, in real machines. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startViv, startVivWith, VIV_COMMAND, viv, vivEnvironment } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client, sh, withSession } from "../support/http.ts";

const folder = mkdtempSync(join(tmpdir(), "viv-files-"));
const here = (name: string) => join(folder, name);
/** In flight long enough to be interrupted. */
const HUGE_MIB = 100;

let id: string;

const inGuest = async (script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout.trim();
const vivWords = (...argv: string[]) => [...VIV_COMMAND.split(" "), ...argv];
const noise = (bytes: number) => Buffer.from(Array.from({ length: bytes }, (_, i) => (i * i + 7 * i) % 251));

/** Directories, modes, times, links, odd names, an empty file and one that is sent as a stream. */
function makeTree(name: string): string {
  const root = here(name);
  mkdirSync(join(root, "sub/deeper"), { recursive: true });
  mkdirSync(join(root, "empty"));
  writeFileSync(join(root, "run.sh"), "#!/bin/sh\necho ran\n");
  chmodSync(join(root, "run.sh"), 0o755);
  writeFileSync(join(root, "sub/secret"), "secret\n");
  chmodSync(join(root, "sub/secret"), 0o600);
  writeFileSync(join(root, "sub/nothing"), "");
  writeFileSync(join(root, "sub/a b'c\nd"), "odd\n");
  writeFileSync(join(root, "sub/\\xff"), "backslash\n");
  writeFileSync(join(root, "sub/deeper/large"), noise(300_000));
  utimesSync(join(root, "sub/secret"), 1_577_934_245, 1_577_934_245);
  symlinkSync("sub/secret", join(root, "link"));
  symlinkSync("/nowhere", join(root, "dangling"));
  for (let i = 0; i < 100; i++) writeFileSync(join(root, `f${i}`), `file ${i}\n`);
  return root;
}

/** An editor that is a script; the file is its first argument. */
function editor(script: string): string {
  const file = here(`editor-${randomId(8)}`);
  writeFileSync(file, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return file;
}

/** Type, mode, size and target of everything in a tree, and the sums of its files. */
const LISTING = `LC_ALL=C; find . -mindepth 1 \\( -type f -printf '%P %m %s %Ts\\n' \\) -o \\( -type l -printf '%P -> %l\\n' \\) -o -printf '%P/\\n' | sort
  find . -type f -exec sha256sum {} + | sort`;
const listingHere = (cwd: string) => execFileSync("sh", ["-c", LISTING], { cwd, encoding: "utf8" }).trim();

beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ on_pty_detach: "keep_live" }));
  await client.sessions.waitUntilLive(id);
});
afterAll(async () => {
  await client.sessions.delete(id).catch(() => {});
  rmSync(folder, { recursive: true, force: true });
});

describe("viv cp", () => {
  test("copies a tree there and back: contents, modes, times, links, empty directories, odd names", async () => {
    const root = makeTree("tree");
    expect(await viv("cp", "-r", root, `${id}:`)).toMatch(/^106 files, 294 KiB copied in /);
    expect(await inGuest(`cd tree; ${LISTING}`)).toBe(listingHere(root));
    expect(await viv("cp", "-r", `${id}:tree`, here("back"))).toMatch(/^106 files, /);
    expect(listingHere(here("back"))).toBe(listingHere(root));
  });

  test("sends no file again that is there byte for byte, and continues after an interrupted copy", async () => {
    const root = here("tree");
    expect(await viv("cp", "-r", root, `${id}:`)).toMatch(/^0 files, 0 B copied, 106 unchanged and skipped/);
    // Size and time are equal, content is not.
    writeFileSync(join(root, "f1"), "FILE 1\n");
    utimesSync(join(root, "f1"), 1_600_000_000, 1_600_000_000);
    await inGuest("touch -d @1600000000 tree/f1; rm tree/f2; chmod 600 tree/f3; ln -sfn elsewhere tree/link");
    expect(await viv("cp", "-r", root, `${id}:`)).toMatch(/^2 files, 14 B copied, 104 unchanged and skipped/);
    expect(await inGuest(`cd tree; ${LISTING}`)).toBe(listingHere(root));
    await inGuest("echo changed > tree/f4");
    const answer = JSON.parse(await viv("cp", "--json", "-r", `${id}:tree/.`, root));
    expect(answer).toMatchObject({ files: 1, bytes: 8, skipped: 105, problems: [] });
    expect(readFileSync(join(root, "f4"), "utf8")).toBe("changed\n");
  });

  test("puts one file under its name into a directory, or under the name that is given", async () => {
    writeFileSync(here("one.txt"), "one\n");
    await inGuest("mkdir -p into");
    await viv("cp", here("one.txt"), `${id}:into`);
    await viv("cp", here("one.txt"), `${id}:new/two.txt`);
    await viv("cp", here("one.txt"), `${id}:made/`);
    expect(await inGuest("cat into/one.txt new/two.txt made/one.txt")).toBe("one\none\none");
    mkdirSync(here("in"));
    await viv("cp", `${id}:into/one.txt`, here("in"));
    await viv("cp", "-q", `${id}:into/one.txt`, here("named"));
    expect(readFileSync(here("in/one.txt"), "utf8") + readFileSync(here("named"), "utf8")).toBe("one\none\n");
  });

  test("copies from one session to another", async () => {
    await withSession(async (other) => {
      expect(await viv("cp", "-r", `${id}:tree`, `${other}:copy`)).toMatch(/^106 files/);
      const { stdout } = await client.sessions.exec(other, { command: sh(`cd copy; ${LISTING}`) });
      expect(stdout.trim()).toBe(await inGuest(`cd tree; ${LISTING}`));
    });
  });

  test("says of each file what is wrong with it, copies the others and fails", async () => {
    const root = here("mixed");
    mkdirSync(root);
    writeFileSync(join(root, "good"), "good\n");
    execFileSync("mkfifo", [join(root, "pipe")]);
    await inGuest("mkdir -p mixed/bad && chmod 555 mixed/bad");
    mkdirSync(join(root, "bad"));
    writeFileSync(join(root, "bad/file"), "x".repeat(200_000));
    const ended = await startViv("cp", "-r", root, `${id}:`).ended;
    expect(ended).toMatchObject({ code: 1, out: expect.stringMatching(/^1 file, 5 B copied/) });
    expect(ended.err).toMatch(/pipe was left out: it is no file, directory or link/);
    expect(ended.err).toMatch(/mixed\/bad\/file: .*permission denied/i);
    expect(await inGuest("cat mixed/good; ls mixed/bad")).toBe("good");
  });

  test("copies the rest of a tree from a session when a directory of it may not be read", async () => {
    await inGuest(
      "mkdir -p partly/open && echo good > partly/open/file && sudo install -d -m 700 partly/closed",
    );
    const ended = await startViv("cp", "-r", `${id}:partly`, here("partly")).ended;
    expect(ended).toMatchObject({ code: 1, out: expect.stringMatching(/^1 file, 5 B copied/) });
    expect(ended.err).toMatch(/partly was not read whole: .*closed.*Permission denied/);
    expect(readFileSync(join(here("partly"), "open/file"), "utf8")).toBe("good\n");
  });

  test("leaves no half file, on either side, when it is interrupted", async () => {
    writeFileSync(here("huge"), Buffer.alloc(HUGE_MIB * 1024 * 1024, "x"));
    const up = startViv("cp", here("huge"), `${id}:huge`);
    // The unfinished file is beside the target, under a name of its own.
    await eventually(async () => expect(await inGuest("ls -A")).toContain(".vivarium-"), 60_000, 10);
    up.kill("SIGINT");
    expect((await up.ended).code).toBe(130);
    await eventually(async () => expect(await inGuest("ls -A")).not.toMatch(/\.vivarium-|huge/));
    await inGuest(`truncate -s ${HUGE_MIB}M zeros`);
    mkdirSync(here("down"));
    const down = startViv("cp", `${id}:zeros`, here("down"));
    await eventually(() => expect(readdirSync(here("down"))).toHaveLength(1), 60_000);
    down.kill("SIGINT");
    expect((await down.ended).code).toBe(130);
    expect(readdirSync(here("down"))).toEqual([]);
    await inGuest("rm zeros");
  });

  test("does not follow a link of an earlier copy to where the session wants it", async () => {
    mkdirSync(here("outside"));
    await inGuest(`rm -rf trap; mkdir trap; ln -s ${here("outside")} trap/door`);
    await viv("cp", "-r", `${id}:trap`, here("trap"));
    expect(readlinkSync(here("trap/door"))).toBe(here("outside"));
    await inGuest("rm trap/door; mkdir trap/door; echo pwned > trap/door/file");
    const ended = await startViv("cp", "-r", `${id}:trap/.`, here("trap")).ended;
    expect(ended).toMatchObject({ code: 1, err: expect.stringContaining("is to be a directory") });
    expect(readdirSync(here("outside"))).toEqual([]);
  });

  test("makes no link at the top of a copy, which the next one would follow to where the session wants it", async () => {
    mkdirSync(here("elsewhere"));
    await inGuest(`rm -rf top; ln -s ${here("elsewhere")} top`);
    expect(await startViv("cp", "-r", `${id}:top`, here("top")).ended).toMatchObject({
      code: 1,
      err: expect.stringContaining("is a link that leads nowhere"),
    });
    await inGuest("rm top; mkdir real; echo pwned > real/file; ln -s real top");
    for (const _time of [1, 2]) await viv("cp", "-r", `${id}:top`, here("top"));
    expect(readdirSync(here("top")).toSorted()).toEqual(["file", "top"]);
    expect(readdirSync(here("elsewhere"))).toEqual([]);
  });

  test("writes through no link of an earlier copy inside a session either", async () => {
    await inGuest(
      "rm -rf kept from; echo mine > kept; mkdir from; ln -s ../kept from/file; ln -s /tmp from/dir",
    );
    await viv("cp", "-r", `${id}:from`, `${id}:to`);
    await inGuest(
      "rm from/file from/dir; echo other > from/file; mkdir from/dir; echo other > from/dir/pwned",
    );
    await viv("cp", `${id}:from/file`, `${id}:to`);
    expect(await inGuest("cat kept to/file; test -L to/file || echo file")).toBe("mine\nother\nfile");
    expect(await startViv("cp", "-r", `${id}:from/dir`, `${id}:to`).ended).toMatchObject({
      code: 1,
      err: expect.stringContaining("is to be a directory"),
    });
    expect(await inGuest("ls /tmp/pwned 2>/dev/null || echo none")).toBe("none");
  });

  test.each([
    [["cp", "a", "b"], 2, "one side of a copy is in a session"],
    [["cp", "missing", "ID:"], 1, "missing: no such file or directory"],
    [["cp", "ID:missing", "."], 1, "missing: no such file or directory"],
    [["cp", "ID:", "."], 2, "is a directory; add -r"],
    [["cp", "ID:tree/f1", "one.txt/x"], 1, "one.txt is not a directory"],
    [["cp", "-r", "tree", "ID:tree/f1"], 1, "is to be a directory"],
  ])("%j fails with %d and a clear word", async (argv, code, word) => {
    const words = argv.map((each) => each.replace("ID", id));
    expect(await startVivWith({ cwd: folder }, ...words).ended).toMatchObject({
      code,
      err: expect.stringContaining(word),
    });
  });

  test("keeps a session's set-user-id bits, and rights beyond the umask, out of this machine", async () => {
    await inGuest("echo x > suid; chmod 6777 suid");
    await viv("cp", `${id}:suid`, here("suid"));
    expect(statSync(here("suid")).mode & 0o7777).toBe(0o777 & ~process.umask());
  });
});

describe("files of a session", () => {
  test("are listed, made, found, printed, moved and removed", async () => {
    await viv("mkdir", `${id}:project/src/lib`);
    await client.session(id).files.write("project/src/main.py", "import os  # TODO\nprint(6 * 7)\n# Todo\n");
    expect(await viv("ls", `${id}:project/src`)).toBe("lib/\nmain.py");
    expect(JSON.parse(await viv("ls", "--json", `${id}:project/src`))).toEqual({
      entries: ["lib/", "main.py"],
    });
    expect(await viv("ls", "-l", `${id}:project/src`)).toMatch(
      /^MODE +BYTES +CHANGED +NAME\ndrwxr-xr-x +4096 +\S+Z +lib\/\n-rw-r--r-- +38 +\S+Z +main\.py$/,
    );
    expect(await viv("find", `${id}:project`, "src/**")).toContain("/workspace/project/src/main.py");
    expect(await viv("cat", `${id}:project/src/main.py`)).toContain("print(6 * 7)");
    expect(await viv("mv", `${id}:project/src/main.py`, `${id}:project/src/lib`)).toBe("");
    expect(await viv("mv", `${id}:project/src/lib/main.py`, `${id}:project/app/run.py`)).toBe("");
    expect(await inGuest("find project -type f")).toBe("project/app/run.py");
    expect(await startViv("rm", `${id}:project`).ended).toMatchObject({
      code: 1,
      err: expect.stringContaining("directory not empty"),
    });
    expect(await viv("rm", "-r", `${id}:project`)).toBe(`${id}:project`);
    expect(await startViv("cat", `${id}:project/app/run.py`).ended).toMatchObject({ code: 1, out: "" });
  });

  test("are searched as with grep, whose exit codes are kept", async () => {
    await client.session(id).files.write("hay/a.txt", "one\nneedle\nthree\n");
    await client.session(id).files.write("hay/b.md", "Needle\n");
    expect(await viv("grep", "needle", `${id}:hay`)).toBe("/workspace/hay/a.txt:2:needle");
    expect((await viv("grep", "-i", "needle", `${id}:hay`)).split("\n").toSorted()).toEqual([
      "/workspace/hay/a.txt:2:needle",
      "/workspace/hay/b.md:1:Needle",
    ]);
    expect(await viv("grep", "-C", "1", "--include", "*.txt", "needle", `${id}:hay`)).toBe(
      "/workspace/hay/a.txt-1-one\n/workspace/hay/a.txt:2:needle\n/workspace/hay/a.txt-3-three",
    );
    expect(await startViv("grep", "absent", `${id}:hay`).ended).toEqual({ code: 1, out: "", err: "" });
    expect((await startViv("grep", "(", `${id}:hay`).ended).code).toBe(2);
    expect((await startViv("grep", "x", "aaaaaaaaaaaaaaaaaaaaa").ended).code).toBe(2);
  });

  test("of any bytes and size are printed as they are", async () => {
    await inGuest("head -c 6000000 /dev/urandom > blob");
    const sum = (await inGuest("sha256sum < blob")).slice(0, 64);
    const child = execFileSync(
      "sh",
      ["-c", 'exec "$@" | sha256sum', "sh", ...vivWords("cat", `${id}:blob`)],
      {
        env: vivEnvironment(),
        encoding: "utf8",
      },
    );
    expect(child.slice(0, 64)).toBe(sum);
  });

  test("are edited with the human's own editor, and keep their mode", async () => {
    await inGuest("printf 'old\\n' > script; chmod 750 script");
    const edit = (script: string, name: string) =>
      startVivWith({ env: { EDITOR: editor(script) } }, "edit", `${id}:${name}`).ended;
    expect(await edit('echo new >> "$1"', "script")).toMatchObject({ code: 0, out: `${id}:script\n` });
    expect(await inGuest("cat script; stat -c %a script")).toBe("old\nnew\n750");
    expect(await edit("true", "script")).toMatchObject({
      code: 0,
      err: expect.stringContaining("not changed"),
    });
    expect(await edit('echo fresh > "$1"', "fresh.txt")).toMatchObject({ code: 0 });
    expect(await inGuest("cat fresh.txt")).toBe("fresh");
    expect(await edit("true", "never.txt")).toMatchObject({ code: 0 });
    expect(await inGuest("ls never.txt 2>&1 || true")).toContain("No such file");
    expect(await edit("exit 4", "script")).toMatchObject({
      code: 1,
      err: expect.stringContaining("exited with 4"),
    });
  });

  test("that were changed meanwhile are not overwritten by an editor; its text is kept here", async () => {
    await client.session(id).files.write("shared.txt", "base\n");
    const meanwhile = `${vivWords("exec", id, "--", "sh", "-c", "'echo theirs > shared.txt'").join(" ")}`;
    const script = editor(`${meanwhile}; echo mine > "$1"`);
    const ended = await startVivWith({ env: { EDITOR: script } }, "edit", `${id}:shared.txt`).ended;
    expect(ended).toMatchObject({
      code: 1,
      err: expect.stringContaining("changed in the session meanwhile"),
    });
    expect(await inGuest("cat shared.txt")).toBe("theirs");
    const kept = /your text is kept in (\S+)/.exec(ended.err)?.[1] ?? "";
    expect(readFileSync(kept, "utf8")).toBe("mine\n");
    rmSync(join(kept, ".."), { recursive: true });
  });
});

describe("named processes", () => {
  test("are started, listed, read, followed and ended", async () => {
    const script = "echo out; echo err >&2; while :; do sleep 0.2; [ -e go ] && echo more && rm go; done";
    expect(await viv("start", id, "--name", "talker", "--", "sh", "-c", script)).toBe("talker");
    const rows = (await viv("ps", id)).split("\n");
    expect(rows[0]).toMatch(/^NAME +STATE +PID +AGE +COMMAND/);
    expect(rows[1]).toMatch(/^talker +running +\d+ +\d+s +sh -c echo out/);
    await eventually(async () =>
      expect(await startViv("logs", id, "talker").ended).toEqual({ code: 0, out: "out\n", err: "err\n" }),
    );
    const following = startViv("logs", "-f", id, "talker");
    await inGuest("touch go");
    await eventually(async () => expect(await viv("logs", id, "talker")).toContain("more"));
    expect(await viv("kill", id, "talker")).toBe("talker");
    expect(await following.ended).toEqual({ code: 0, out: "out\nmore\n", err: "err\n" });
    expect(JSON.parse(await viv("ps", "--json", id)).processes).toEqual([
      expect.objectContaining({ name: "talker", state: "exited", exit_code: 143, keep_alive: false }),
    ]);
  });

  test("that cannot be started, and names that are not there, say so", async () => {
    expect(await startViv("start", "--name", "nope", id, "--", "no-such-program").ended).toMatchObject({
      code: 1,
      out: "nope\n",
      err: expect.stringMatching(/could not be started \(exit code 127\): .*no-such-program/),
    });
    expect(await startViv("kill", id, "nobody", "nope").ended).toMatchObject({ code: 1, out: "nope\n" });
    expect(await startViv("logs", id, "nobody").ended).toMatchObject({ code: 1 });
    expect(await startViv("start", "--name", "Bad Name", id, "--", "true").ended).toMatchObject({ code: 1 });
  });

  test("that keep a session alive are marked", async () => {
    await viv("start", "--name", "server", "--keep-alive", id, "--", "sleep", "600");
    expect(await viv("ps", id)).toMatch(/^server +running .*yes$/m);
    await viv("kill", id, "server");
  });
});
