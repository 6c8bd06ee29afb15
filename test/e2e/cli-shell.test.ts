/** `viv shell` and `viv exec -i` as used by a human: on a real terminal, in real machines. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { sleep } from "@vivarium/kit/clock";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startVivWith, VIV_COMMAND, viv, vivEnvironment } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client, sh } from "../support/http.ts";
import { Tmux } from "../support/tmux.ts";
import { weakLink } from "../support/weak-link.ts";

let id: string;
let tmux: Tmux;

const inGuest = async (script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout.trim();
/** Settings of the human's own terminal, by stty(1). */
async function ownTerminal(): Promise<string> {
  await tmux.enterOnEmpty('echo "<$(stty -g)>"');
  return (await tmux.shows(/<([0-9a-f:]+)>\n/))[1] ?? "";
}
const openShell = async (options = "", session = id) => {
  await tmux.enterOnEmpty(`viv shell ${options} ${session}; code=$?`);
  await tmux.shows(/sandbox@\S+:\S+\$/);
};
/** The prompt of the human's shell, and the exit code of viv. */
const exitCode = async () => {
  await tmux.shows(/HOST> $/m);
  await tmux.enterOnEmpty('echo "<$code>"');
  return Number((await tmux.shows(/<(\d+)>/))[1]);
};
const leaveEditor = async () => {
  await tmux.press("C-x");
  await tmux.shows(/sandbox@\S+:\S+\$ $/m);
};
const shellPid = async () => {
  await tmux.enterOnEmpty('echo "<$$>"');
  return (await tmux.shows(/<(\d+)>/))[1] ?? "";
};

beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ on_pty_detach: "keep_live" }));
  await client.sessions.waitUntilLive(id);
});
afterAll(async () => {
  await client.sessions.delete(id).catch(() => {});
});
beforeEach(async () => {
  tmux = await Tmux.open(vivEnvironment());
  await tmux.enter(`viv() { ${VIV_COMMAND} "$@"; }; clear`);
});
afterEach(async () => {
  await tmux.close();
  await client
    .session(id)
    .exec({ command: sh("pkill -KILL -u sandbox -x 'bash|nano|sleep|cat'; rm -f .*.swp") })
    .catch(() => {});
});

describe("viv shell", () => {
  test("runs an editor on the whole screen, follows the window's size, and writes what was typed", async () => {
    await openShell();
    await tmux.enterOnEmpty("stty size");
    await tmux.shows(/^30 100$/m);
    await tmux.enter("nano notes.txt");
    await tmux.shows(/GNU nano[\s\S]*\^X Exit/);
    await tmux.shows(/\[ New File \]/);
    await tmux.type("written in a full-screen editor");
    await tmux.shows(/written in a full-screen editor/);
    await tmux.resize(80, 20);
    // The last line of the smaller screen is nano's again.
    await eventually(async () => {
      const lines = (await tmux.screen()).split("\n");
      expect(lines.slice(0, 20).join("\n")).toMatch(/GNU nano[\s\S]*\^X Exit/);
    });
    await tmux.press("C-o", "Enter");
    await tmux.shows(/Wrote 1 line/);
    await leaveEditor();
    await tmux.enterOnEmpty("stty size");
    await tmux.shows(/^20 80$/m);
    expect(await inGuest("cat notes.txt")).toBe("written in a full-screen editor");
    await tmux.enter("exit");
    await tmux.shows(/HOST> $/m);
  });

  test("is left with Ctrl-] and come back to: the same shell, with what ran in it", async () => {
    const before = await ownTerminal();
    await openShell();
    const pid = await shellPid();
    await tmux.enter("KEPT=yes; nano draft.txt");
    await tmux.shows(/GNU nano[\s\S]*\^X Exit/);
    await tmux.type("half a thought");
    await tmux.shows(/half a thought/);
    await tmux.press("C-]");
    await tmux.shows(new RegExp(`left terminal "shell"[\\s\\S]*viv shell ${id}[\\s\\S]*HOST> $`));
    expect(await tmux.fact("alternate_on")).toBe("0");
    expect(await ownTerminal()).toBe(before);

    await tmux.enterOnEmpty(`viv shell ${id}`);
    await tmux.shows(/GNU nano[\s\S]*half a thought/);
    await tmux.press("C-x");
    await tmux.shows(/Save modified buffer/);
    await tmux.type("n");
    await tmux.shows(/sandbox@\S+:\S+\$ $/m);
    await tmux.enterOnEmpty('echo "<$$ $KEPT>"');
    await tmux.shows(new RegExp(`<${pid} yes>`));
    await tmux.enter("exit");
    await tmux.shows(/HOST> $/m);
    expect(await ownTerminal()).toBe(before);
  });

  test("loses no key, also of those that come at once", async () => {
    await openShell();
    await tmux.enterOnEmpty("cat > keys; echo done");
    await eventually(async () => expect(await inGuest("pgrep -c -x cat || true")).toBe("1"));
    const lines = Array.from({ length: 60 }, (_, i) => `${i}-${"abcdefghij".repeat(i % 7)}`);
    for (const line of lines) await tmux.enter(line);
    await tmux.press("C-d");
    await tmux.shows(/^done$/m);
    expect(await inGuest("cat keys")).toBe(lines.join("\n"));
  });

  test("exits with the shell's own code; the next one is a new shell", async () => {
    await openShell();
    const pid = await shellPid();
    await tmux.enter("exit 7");
    expect(await exitCode()).toBe(7);
    await openShell();
    expect(await shellPid()).not.toBe(pid);
  });

  test("a new one, and one with a command, are not shared and end when they are left", async () => {
    await openShell("--new");
    await tmux.enter("sleep 31907");
    await eventually(async () => expect(await inGuest("pgrep -fc '[s]leep 31907' || true")).toBe("1"));
    await tmux.press("C-]");
    await tmux.shows(/what ran in this terminal is ended[\s\S]*HOST> $/m);
    await eventually(
      async () => expect(await inGuest("pgrep -fc '[s]leep 31907' || true")).toBe("0"),
      60_000,
    );
    await tmux.enterOnEmpty(`viv shell ${id} -- sh -c 'echo "<$TERM>"; exit 9'; echo "<$?>"`);
    await tmux.shows(/<tmux-256color>\s+<9>/);
  });

  test("the key to leave with can be another; then Ctrl-] is the session's", async () => {
    await openShell("--detach-key ctrl-a");
    await tmux.enterOnEmpty("read -rsn1 key; printf '<%02x>\\n' \"'$key\"");
    await tmux.press("C-]");
    await tmux.shows(/<1d>/);
    await tmux.press("C-a");
    await tmux.shows(/left terminal "shell"/);
  });

  test.each([
    ["TERM", 143],
    ["HUP", 129],
    ["INT", 130],
  ])("killed with SIG%s, it gives the terminal back as it was", async (signal, code) => {
    const before = await ownTerminal();
    await openShell();
    await tmux.enter("nano draft.txt");
    await tmux.shows(/GNU nano[\s\S]*\^X Exit/);
    await tmux.enter("");
    const command = await inTheTerminal();
    process.kill(command, `SIG${signal}`);
    await tmux.shows(/HOST> $/m);
    expect(await tmux.fact("alternate_on")).toBe("0");
    expect(await tmux.fact("cursor_flag")).toBe("1");
    expect(await exitCode()).toBe(code);
    expect(await ownTerminal()).toBe(before);
  });

  test("comes back by itself when the network does; leaves when asked to meanwhile", async () => {
    const before = await ownTerminal();
    const link = await weakLink(vivEnvironment().VIV_URL ?? "");
    try {
      await openShell(`--url ${link.url}`);
      const pid = await shellPid();
      link.cut();
      await tmux.shows(/the connection was lost/);
      link.mend();
      // Keys typed while there is no connection are lost.
      await eventually(async () => {
        await tmux.enter('echo "<back in $$>"');
        await tmux.shows(new RegExp(`<back in ${pid}>`), 2000);
      }, 60_000);
      link.cut();
      await tmux.shows(/the connection was lost/);
      await tmux.press("C-]");
      await tmux.shows(/left terminal "shell"[\s\S]*HOST> $/m);
      expect(await ownTerminal()).toBe(before);
    } finally {
      await link.close();
    }
  });

  test("a terminal without a name ends with a clear word when the network is lost", async () => {
    const before = await ownTerminal();
    const link = await weakLink(vivEnvironment().VIV_URL ?? "");
    try {
      await openShell(`--new --url ${link.url}`);
      link.cut();
      await tmux.shows(/viv: the connection was lost[\s\S]*HOST> $/m);
      expect(await exitCode()).toBe(125);
      expect(await ownTerminal()).toBe(before);
    } finally {
      await link.close();
    }
  });

  test("ends with a clear word when the session is paused under it, and comes back to the same shell", async () => {
    const before = await ownTerminal();
    await openShell();
    const pid = await shellPid();
    await viv("pause", id);
    await tmux.shows(/viv: the service ended the connection: [\s\S]*HOST> $/m);
    expect(await ownTerminal()).toBe(before);
    await openShell();
    expect(await shellPid()).toBe(pid);
  });

  test("says what is wrong without a terminal, and for a session that is not there", async () => {
    expect(await startVivWith({}, "shell", id).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining("viv exec -i"),
    });
    await tmux.enterOnEmpty('viv shell aaaaaaaaaaaaaaaaaaaaa; echo "<$?>"');
    await tmux.shows(/viv: session not found[\s\S]*<125>/);
  });
});

/** The process that owns the human's terminal: the one viv that runs there. */
async function inTheTerminal(): Promise<number> {
  const shell = await tmux.fact("pane_pid");
  const found = execFileSync("pgrep", ["-P", shell, "-f", "main.ts shell"], { encoding: "utf8" });
  return Number(found.trim());
}

describe("viv exec -i", () => {
  const exec = (input: Readable | undefined, ...argv: string[]) =>
    startVivWith(input === undefined ? {} : { input }, "exec", "-i", id, "--", ...argv).ended;

  test("passes every byte of its input on, and its end", async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919) % 256));
    const sum = createHash("sha256").update(bytes).digest("hex");
    const { code, out } = await exec(Readable.from([bytes.subarray(0, 5), bytes.subarray(5)]), "sha256sum");
    expect({ code, out }).toEqual({ code: 0, out: `${sum}  -\n` });
    expect(await exec(Readable.from([]), "wc", "-c")).toMatchObject({ code: 0, out: "0\n" });
  });

  test("keeps both outputs apart and exits with the command's code", async () => {
    const ended = await exec(Readable.from(["data\n"]), ...sh("cat; echo aside >&2; exit 3"));
    expect(ended).toMatchObject({ code: 3, out: "data\n", err: "aside\n" });
  });

  test("says which command is missing, and nothing of how its input gets there", async () => {
    const ended = await exec(Readable.from([]), "no-such-command", "a b");
    expect(ended).toMatchObject({
      code: 127,
      err: expect.stringMatching(/^viv exec: .*no-such-command: not found\n$/),
    });
  });

  test("passes input on as it comes, and does not wait for unread input", async () => {
    async function* lines() {
      yield "first\n";
      await sleep(3_600_000);
    }
    const child = startVivWith({ input: Readable.from(lines()) }, "exec", "-i", id, "--", "head", "-n1");
    expect(await child.ended).toMatchObject({ code: 0, out: "first\n" });
    expect(await inGuest("ls -A /tmp")).not.toContain("viv-stdin");
  });

  test("on a terminal it is the terminal's: keys, screen and code", async () => {
    const before = await ownTerminal();
    await tmux.enterOnEmpty(`viv exec -i ${id} -- python3 -q; code=$?`);
    await tmux.shows(/>>> /);
    await tmux.enter("import sys; print(6 * 7, sys.stdin.isatty()); sys.exit(5)");
    await tmux.shows(/^42 True$/m);
    expect(await exitCode()).toBe(5);
    expect(await ownTerminal()).toBe(before);
  });
});
