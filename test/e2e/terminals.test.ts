/** Terminals and the tunnel as a client meets them (interface "Terminal and tunnel", wire.md 8), in real machines. */
import { sleep } from "@vivarium/kit/clock";
import { describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";
import { servicePid } from "../support/service.ts";
import { openTerminal, refusalOf, Socket, Terminal } from "../support/web-socket.ts";

const MIB = 1024 * 1024;
const KEPT = { on_pty_detach: "keep_live" };

const stateOf = async (id: string) => (await client.sessions.get(id)).state;
const untilState = (id: string, state: string, withinMs = 60_000) =>
  eventually(async () => expect(await stateOf(id)).toBe(state), withinMs);
const inGuest = async (id: string, script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout;
/** The pattern with brackets does not find the search itself. */
const countOf = async (id: string, pattern: string) =>
  Number(await inGuest(id, `pgrep -fc -- '${pattern}' || true`));
const openTunnel = (id: string) => new Socket(`/v1/sessions/${id}/tunnel`).opened();

describe("a terminal", () => {
  test("is the login shell of sandbox in /workspace, 24 by 80, an xterm-256color without COLORTERM", async () => {
    await withSession(
      async (id) => {
        const terminal = await openTerminal(id);
        terminal.type(
          'echo "<$(id -un)|$PWD|$(stty size)|$TERM|$(printenv COLORTERM || echo unset)|$A|$0>"\n',
        );
        await terminal.shows(/<sandbox\|\/workspace\|24 80\|xterm-256color\|unset\|b\|-\S*sh>/);
        expect(await inGuest(id, "ps -o tty= -C bash | sort -u")).toMatch(/pts\/\d/);
        terminal.type("exit 3\n");
        expect(await terminal.closed).toBe(1000);
        expect(terminal.exitCode).toBe(3);
      },
      { ...KEPT, env: { A: "b" } },
    );
  });

  test("takes its size, its names, its command and its directory from the query", async () => {
    await withSession(async (id) => {
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
    }, KEPT);
  });

  test("is resized, and told so; a wrong length or a zero is ignored", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id);
      // A resize overtakes what was typed and is not read yet.
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
    }, KEPT);
  });

  test("passes signals 1 to 31 to the foreground process; others, unknown frames and empty messages are ignored", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id);
      for (const number of [0, 32, 255]) terminal.signal(number);
      terminal.send(0x7f, Buffer.from("what"));
      terminal.webSocket.send(Buffer.alloc(0));
      terminal.type('sh -c "trap \'echo \\"<usr1>\\"\' USR1; echo ready; sleep 3 & wait; wait"\n');
      await terminal.shows(/[\r\n]ready/);
      terminal.signal(10);
      await terminal.shows(/<usr1>/);
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
    }, KEPT);
  });

  test("signal 9 kills, and exit still follows as 128 and the signal", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id, "?cmd=sleep&cmd=600");
      terminal.signal(9);
      expect(await terminal.closed).toBe(1000);
      expect(terminal.exitCode).toBe(137);
    }, KEPT);
  });

  test("tells the exit after all data, in messages of at most 64 KiB", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(
        id,
        `?cmd=sh&cmd=-c&cmd=${encodeURIComponent("seq 1 200000; exit 5")}`,
      );
      expect(await terminal.closed).toBe(1000);
      expect(terminal.text.trimEnd().split("\r\n").at(-1)).toBe("200000");
      expect(terminal.text.split("\r\n")).toHaveLength(200_001);
      expect(terminal.exitCode).toBe(5);
      expect(Math.max(...terminal.messages.map(({ length }) => length))).toBeLessThanOrEqual(65_536);
    }, KEPT);
  });

  test("of a command that is not found exits with 127", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id, "?cmd=no-such-command");
      expect(await terminal.closed).toBe(1000);
      expect(terminal.exitCode).toBe(127);
    }, KEPT);
  });

  test("takes what follows the request at once", async () => {
    await withSession(async (id) => {
      const terminal = new Terminal(`/v1/sessions/${id}/pty`);
      terminal.webSocket.once("open", () => terminal.type("echo $((6*7))\n"));
      await terminal.shows(/[\r\n]42/);
      await terminal.close();
    }, KEPT);
  });

  test("that its client leaves is hung up: SIGHUP, and SIGKILL after 5 s for what ignores it", async () => {
    await withSession(async (id) => {
      const polite = await openTerminal(id);
      polite.type("sleep 3190\n");
      const stubborn = await openTerminal(id);
      stubborn.type("trap '' HUP; (trap '' HUP; exec sleep 3191)\n");
      await eventually(async () => expect(await countOf(id, "[s]leep 319[01]")).toBe(2));
      await polite.close();
      stubborn.webSocket.terminate();
      await eventually(async () => expect(await countOf(id, "[s]leep 3190")).toBe(0), 3_000);
      await eventually(async () => expect(await countOf(id, "[s]leep 3191")).toBe(0), 15_000);
    }, KEPT);
  });

  test("is one of 16; a seventeenth is 429, and each is its own", async () => {
    await withSession(async (id) => {
      const all = await Promise.all(Array.from({ length: 16 }, () => openTerminal(id, "?cmd=cat")));
      const refusal = await refusalOf(`/v1/sessions/${id}/pty`);
      expect([refusal.status, refusal.body.code, refusal.headers["retry-after"]]).toEqual([
        429,
        "rate_limited",
        "1",
      ]);
      all[3]?.type("three\n");
      await all[3]?.shows(/three\r\nthree/);
      expect(all.filter(({ text }) => text !== "")).toHaveLength(1);
      await all[0]?.close();
      await eventually(async () => (await openTerminal(id, "?cmd=true")).close(), 10_000);
      await Promise.all(all.slice(1).map((terminal) => terminal.close()));
    }, KEPT);
  });

  test("whose client does not read blocks its program instead of filling memory", {
    timeout: 300_000,
  }, async () => {
    await withSession(async (id) => {
      const control = servicePid(service, "control");
      const script = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; head -c 65536 /dev/zero; done";
      const terminal = await openTerminal(id, `?cmd=sh&cmd=-c&cmd=${encodeURIComponent(script)}`);
      await eventually(() => expect(terminal.messages.length).toBeGreaterThan(0));
      terminal.webSocket.pause();
      const before = residentBytes(control);
      const stands = async () => {
        const first = await inGuest(id, "cat /workspace/count");
        await sleep(2_000);
        expect(await inGuest(id, "cat /workspace/count")).toBe(first);
      };
      await eventually(stands, 60_000);
      expect(residentBytes(control) - before).toBeLessThan(64 * MIB);
      terminal.webSocket.resume();
      await eventually(async () => await expect(stands()).rejects.toThrow(), 30_000);
      terminal.webSocket.terminate();
    }, KEPT);
  });
});

describe("a named terminal", () => {
  const NAMED = "?terminal=main";

  test("stays when its client leaves; the next one sees what was shown, in the same shell", async () => {
    await withSession(async (id) => {
      const first = await openTerminal(id, NAMED);
      first.type("mine=there; echo shown-$mine\n");
      await first.shows(/shown-there/);
      await first.close();
      const second = await openTerminal(id, NAMED);
      await second.shows(/shown-there/);
      second.type("echo still-$mine\n");
      await second.shows(/still-there/);
      await second.close();
    }, KEPT);
  });

  test("is shared by its clients, and its end is told to all", async () => {
    await withSession(async (id) => {
      const [one, two] = [await openTerminal(id, NAMED), await openTerminal(id, NAMED)];
      one.type("echo both\n");
      await Promise.all([one.shows(/[\r\n]both/), two.shows(/[\r\n]both/)]);
      two.type("exit 4\n");
      expect(await Promise.all([one.closed, two.closed])).toEqual([1000, 1000]);
      expect([one.exitCode, two.exitCode]).toEqual([4, 4]);
    }, KEPT);
  });

  test("goes on after its session was paused and woken", async () => {
    await withSession(async (id) => {
      const first = await openTerminal(id, NAMED);
      first.type("mine=there; echo shown-$mine\n");
      await first.shows(/shown-there/);
      await client.sessions.pause(id);
      expect(await first.closed).toBe(1001);
      const second = await openTerminal(id, NAMED);
      expect(await stateOf(id)).toBe("live");
      second.type("echo still-$mine\n");
      await second.shows(/still-there/);
      await second.close();
    }, KEPT);
  });

  test("that is left pauses its session, and the next client finds what was shown and the same shell", async () => {
    await withSession(async (id) => {
      const first = await openTerminal(id, NAMED);
      first.type("mine=there; echo shell-$$-\n");
      const shell = await first.shows(/shell-\d+-/);
      await first.close();
      await untilState(id, "paused");
      const second = await openTerminal(id, NAMED);
      await second.shows(new RegExp(shell));
      second.type('echo "still $mine shell-$$-"\n');
      await second.shows(new RegExp(`still there ${shell}`));
      await second.close();
    });
  });
});

describe("the tunnel", () => {
  test("carries the bytes of the guest's SSH server, and closing either side closes the other", async () => {
    await withSession(async (id) => {
      const tunnel = await openTunnel(id);
      await eventually(() => expect(Buffer.concat(tunnel.messages).toString("latin1")).toMatch(/^SSH-2\.0-/));
      tunnel.webSocket.send(Buffer.from("no ssh\r\n\r\n"));
      expect(await tunnel.closed).toBe(1000);
      await (await openTunnel(id)).close();
    }, KEPT);
  });

  test("wakes its session, keeps it from being idle, and is closed by a pause", async () => {
    await withSession(
      async (id) => {
        await client.sessions.pause(id);
        const tunnel = await openTunnel(id);
        await sleep(8_000);
        expect(await stateOf(id)).toBe("live");
        await client.sessions.pause(id);
        expect(await tunnel.closed).toBe(1001);
      },
      { idle_timeout_ms: 1_000 },
    );
  });
});

describe("a refusal comes before the upgrade:", () => {
  const NOBODY = "b".repeat(21);

  test.each(["pty", "tunnel"])(
    "%s without a good credential, without a session, or without an upgrade",
    async (kind) => {
      const path = `/v1/sessions/${NOBODY}/${kind}`;
      const wrongKey = await refusalOf(path, `viv_${"x".repeat(40)}`);
      expect([wrongKey.status, wrongKey.body.code]).toEqual([401, "unauthenticated"]);
      const unknown = await refusalOf(path);
      expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
      expect(unknown.headers).toMatchObject({
        connection: "close",
        "content-length": expect.stringMatching(/^\d+$/),
        "x-request-id": expect.stringMatching(/^req_/),
      });
      expect((await ask(path)).status).toBe(400);
    },
  );

  test.each(["rows=0", "rows=1001", "cols=65535", "term=a%20b", "colorterm=", "cmd=", "terminal=Main"])(
    "pty?%s is 400 and names the parameter",
    async (query) => {
      const { status, body } = await refusalOf(`/v1/sessions/${NOBODY}/pty?${query}`);
      expect([status, body.code]).toEqual([400, "validation"]);
      expect(body.error.startsWith(query.split("=")[0] ?? "?")).toBe(true);
    },
  );

  test("a cwd that is missing, or no directory", async () => {
    await withSession(async (id) => {
      for (const [cwd, words] of [
        ["nowhere", "no such file or directory"],
        ["/etc/passwd", "not a directory"],
      ]) {
        const { status, body } = await refusalOf(`/v1/sessions/${id}/pty?cwd=${cwd}`);
        expect([status, body.error]).toEqual([400, `cwd: ${words}`]);
      }
    });
  });
});

describe.each(["pty", "tunnel"])("a %s", (kind) => {
  const open = (id: string) => new Socket(`/v1/sessions/${id}/${kind}`).opened();

  test("is closed with 1003 by a text message, and with 1009 by one over 1 MiB and 64 bytes", async () => {
    await withSession(async (id) => {
      const text = await open(id);
      text.webSocket.send("text");
      expect(await text.closed).toBe(1003);
      const large = await open(id);
      large.webSocket.send(Buffer.alloc(MIB + 65));
      expect(await large.closed).toBe(1009);
      expect(await stateOf(id)).toBe("live");
    }, KEPT);
  });

  test("is closed with 1001 when its session is destroyed", async () => {
    await withSession(async (id) => {
      const socket = await open(id);
      expect((await ask(`/v1/sessions/${id}`, { method: "DELETE" })).status).toBe(204);
      expect(await socket.closed).toBe(1001);
    }, KEPT);
  });
});

describe("when the last terminal's client leaves", () => {
  test("the session is paused unless told otherwise, once", async () => {
    await withSession(async (id) => {
      const [one, two] = [await openTerminal(id), await openTerminal(id)];
      await one.close();
      await sleep(4_000);
      expect(await stateOf(id)).toBe("live");
      two.webSocket.terminate();
      await untilState(id, "paused");
      await inGuest(id, "true");
      await sleep(4_000);
      expect(await stateOf(id)).toBe("live");
    });
  });

  test("exit is a leave as well", async () => {
    await withSession(
      async (id) => {
        const terminal = await openTerminal(id);
        terminal.type("exit\n");
        expect(await terminal.closed).toBe(1000);
        await untilState(id, "paused");
      },
      { on_pty_detach: "pause" },
    );
  });

  test("destroy ends the session, and its history says why", async () => {
    await withSession(
      async (id) => {
        await (await openTerminal(id)).close();
        await eventually(async () => expect((await ask(`/v1/sessions/${id}`)).status).toBe(404), 30_000);
        const { sessions } = (await ask("/v1/sessions?state=ended&limit=500")).body as {
          sessions: { session_id: string; end_reason: string }[];
        };
        expect(sessions.find(({ session_id }) => session_id === id)?.end_reason).toBe("on_detach_destroy");
      },
      { on_pty_detach: "destroy" },
    );
  });

  test("keep_live leaves it as it is", async () => {
    await withSession(async (id) => {
      await (await openTerminal(id)).close();
      await sleep(5_000);
      expect(await stateOf(id)).toBe("live");
    }, KEPT);
  });

  test("a command in flight is waited for", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id);
      const ran = client.sessions.exec(id, { command: sh("sleep 6; echo done") });
      await eventually(async () => expect(await countOf(id, "[s]leep 6")).toBeGreaterThan(0));
      await terminal.close();
      expect((await ran).stdout).toBe("done\n");
      await untilState(id, "paused");
    });
  });

  test("33 that come and go at once are one leave", { timeout: 600_000 }, async () => {
    await withSession(async (id) => {
      for (let round = 0; round < 2; round++) {
        const comeAndGo = async () => {
          const terminal = await openTerminal(id, "?terminal=storm");
          terminal.type("x");
          await terminal.close();
        };
        await Promise.all(Array.from({ length: 33 }, comeAndGo));
        await untilState(id, "paused");
        await sleep(4_000);
        expect(await stateOf(id)).toBe("paused");
      }
    });
  });
});

test("an attached terminal keeps its session from being idle, and idleness counts from its leave", async () => {
  await withSession(
    async (id) => {
      const terminal = await openTerminal(id);
      await sleep(8_000);
      expect(await stateOf(id)).toBe("live");
      await terminal.close();
      await untilState(id, "paused");
    },
    { ...KEPT, idle_timeout_ms: 1_000 },
  );
});
