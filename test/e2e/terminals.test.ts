/**
 * Behaviour of terminals and the tunnel that needs a real PTY and a real kernel: size, signals, hang-up, backlog, and
 * the pause of their machine. Everything else is tested beside `packages/control/src/terminals`.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { client, sh, withSession } from "../support/http.ts";
import { openTerminal, Socket } from "../support/web-socket.ts";

/** One session for all terminals that leave nothing behind. */
let id: string;
beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ on_pty_detach: "keep_live", env: { A: "b" } }));
  await client.sessions.waitUntilLive(id);
});
afterAll(() => client.sessions.delete(id));

const stateOf = async (session: string) => (await client.sessions.get(session)).state;
const untilState = (session: string, state: string, withinMs = 60_000) =>
  eventually(async () => expect(await stateOf(session)).toBe(state), withinMs);
const inGuest = async (session: string, script: string) =>
  (await client.sessions.exec(session, { command: sh(script), timeout_ms: 60_000 })).stdout;
/** The pattern with brackets does not find the search itself. */
const countOf = async (session: string, pattern: string) =>
  Number(await inGuest(session, `pgrep -fc -- '${pattern}' || true`));
const openTunnel = () => new Socket(`/v1/sessions/${id}/tunnel`).opened();

describe("a terminal", () => {
  test("is the login shell of sandbox in /workspace, 24 by 80, an xterm-256color without COLORTERM", async () => {
    const terminal = await openTerminal(id);
    terminal.type('echo "<$(id -un)|$PWD|$(stty size)|$TERM|$(printenv COLORTERM || echo unset)|$A|$0>"\n');
    await terminal.shows(/<sandbox\|\/workspace\|24 80\|xterm-256color\|unset\|b\|-\S*sh>/);
    expect(await inGuest(id, "ps -o tty= -C bash | sort -u")).toMatch(/pts\/\d/);
    terminal.type("exit 3\n");
    expect(await terminal.closed).toBe(1000);
    expect(terminal.exitCode).toBe(3);
  });

  test("takes its size, its names, its command and its directory from the query", async () => {
    await inGuest(id, "mkdir -p /workspace/sub");
    const words = ["sh", "-c", 'echo "<$(stty size)|$TERM|$COLORTERM|$PWD>"; exit 9'];
    const cmd = words.map((word) => `&cmd=${encodeURIComponent(word)}`).join("");
    const terminal = await openTerminal(
      id,
      `?rows=50&cols=132&term=screen&colorterm=truecolor&cwd=sub${cmd}`,
    );
    expect(await terminal.closed).toBe(1000);
    expect(terminal.text).toContain("<50 132|screen|truecolor|/workspace/sub>");
    expect(terminal.exitCode).toBe(9);
  });

  test("is resized, with a signal; a wrong length or a zero is ignored", async () => {
    const terminal = await openTerminal(id);
    // A resize overtakes typed bytes that were not read yet.
    terminal.type("trap 'echo \"<$(stty size)>\"' WINCH; echo ready\n");
    await terminal.shows(/[\r\n]ready/);
    terminal.resize(0, 0);
    terminal.resize(0, 80);
    terminal.send(0x02, Buffer.of(0, 24, 0));
    terminal.resize(40, 100);
    terminal.type("\n");
    await terminal.shows(/<40 100>/);
    expect(terminal.text).not.toMatch(/<0 |<24 0>/);
    terminal.resize(65_535, 65_535);
    terminal.type("stty size\n");
    await terminal.shows(/65535 65535/);
    await terminal.close();
  });

  test("passes signals 1 to 31 to the foreground process; others, unknown frames and empty messages are ignored", async () => {
    const terminal = await openTerminal(id);
    for (const number of [0, 32, 255]) terminal.signal(number);
    terminal.send(0x7f, Buffer.from("what"));
    terminal.webSocket.send(Buffer.alloc(0));
    // Runs until the signal comes, however late.
    terminal.type('sh -c "trap \'echo \\"<usr1>\\"; exit\' USR1; echo ready; while :; do sleep 0.1; done"\n');
    await terminal.shows(/[\r\n]ready/);
    terminal.signal(10);
    await terminal.shows(/[\r\n]<usr1>[\r\n]/);
    terminal.type("sleep 3188\n");
    await eventually(async () => expect(await countOf(id, "[s]leep 3188")).toBe(1));
    terminal.signal(2);
    terminal.type('echo "<$?>"\n');
    await terminal.shows(/<130>/);
    terminal.type("sleep 3189\n");
    await eventually(async () => expect(await countOf(id, "[s]leep 3189")).toBe(1));
    terminal.type("\x03");
    await eventually(async () => expect(await countOf(id, "[s]leep 3189")).toBe(0));
    await terminal.close();
  });

  test("signal 9 kills, and exit still follows as 128 and the signal", async () => {
    const terminal = await openTerminal(id, "?cmd=sleep&cmd=600");
    terminal.signal(9);
    expect(await terminal.closed).toBe(1000);
    expect(terminal.exitCode).toBe(137);
  });

  test("reports the exit after all data, in messages of at most 64 KiB", async () => {
    const terminal = await openTerminal(
      id,
      `?cmd=sh&cmd=-c&cmd=${encodeURIComponent("seq 1 40000; exit 5")}`,
    );
    expect(await terminal.closed).toBe(1000);
    expect(terminal.text.trimEnd().split("\r\n").at(-1)).toBe("40000");
    expect(terminal.text.split("\r\n")).toHaveLength(40_001);
    expect(terminal.exitCode).toBe(5);
    expect(Math.max(...terminal.messages.map(({ length }) => length))).toBeLessThanOrEqual(65_536);
  });

  test("of a command that is not found exits with 127", async () => {
    const terminal = await openTerminal(id, "?cmd=no-such-command");
    expect(await terminal.closed).toBe(1000);
    expect(terminal.exitCode).toBe(127);
  });

  test("that its client leaves is hung up: SIGHUP, and SIGKILL after 5 s for what ignores it", async () => {
    const polite = await openTerminal(id);
    polite.type("sleep 3190\n");
    const stubborn = await openTerminal(id);
    stubborn.type("trap '' HUP; (trap '' HUP; exec sleep 3191)\n");
    await eventually(async () => expect(await countOf(id, "[s]leep 319[01]")).toBe(2));
    await polite.close();
    stubborn.webSocket.terminate();
    await eventually(async () => expect(await countOf(id, "[s]leep 3190")).toBe(0), 3_000);
    await eventually(async () => expect(await countOf(id, "[s]leep 3191")).toBe(0));
  });
});

describe("a named terminal", () => {
  const NAMED = "?terminal=main";

  test("stays when its client leaves; the next one sees what was shown, in the same shell", async () => {
    const first = await openTerminal(id, NAMED);
    first.type("mine=there; echo shown-$mine\n");
    await first.shows(/shown-there/);
    await first.close();
    const second = await openTerminal(id, NAMED);
    await second.shows(/shown-there/);
    second.type("echo still-$mine\n");
    await second.shows(/still-there/);
    await second.close();
  });

  test("is shared by its clients, and its end is reported to all", async () => {
    const [one, two] = [await openTerminal(id, NAMED), await openTerminal(id, NAMED)];
    one.type("echo both\n");
    await Promise.all([one.shows(/[\r\n]both/), two.shows(/[\r\n]both/)]);
    two.type("exit 4\n");
    expect(await Promise.all([one.closed, two.closed])).toEqual([1000, 1000]);
    expect([one.exitCode, two.exitCode]).toEqual([4, 4]);
  });

  test("that is left pauses its session, and the next client finds what was shown and the same shell", async () => {
    await withSession(async (paused) => {
      const first = await openTerminal(paused, NAMED);
      first.type("mine=there; echo shell-$$-\n");
      const shell = await first.shows(/shell-\d+-/);
      await first.close();
      await untilState(paused, "paused");
      const second = await openTerminal(paused, NAMED);
      await second.shows(new RegExp(shell));
      second.type('echo "still $mine shell-$$-"\n');
      await second.shows(new RegExp(`still there ${shell}`));
      await second.close();
    });
  });
});

test("a tunnel carries the bytes of the guest's SSH server, and closing either side closes the other", async () => {
  const tunnel = await openTunnel();
  await eventually(() => expect(Buffer.concat(tunnel.messages).toString("latin1")).toMatch(/^SSH-2\.0-/));
  tunnel.webSocket.send(Buffer.from("no ssh\r\n\r\n"));
  expect(await tunnel.closed).toBe(1000);
  await (await openTunnel()).close();
});
