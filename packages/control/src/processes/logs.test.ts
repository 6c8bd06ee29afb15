/** Logs of named processes, buffered and followed over a fake node. */
import { request } from "node:http";
import type { AddressInfo } from "node:net";
import type { Output } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const MIB = 2 ** 20;
let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  id = await control.createLive();
});
beforeEach(() => {
  control.node.guestCalls.length = 0;
});
afterAll(() => control.close());

const logs = (query = "", session = id) =>
  control.ask(`GET /v1/sessions/${session}/processes/web/logs${query}`);
/** The guest's answers; a call for the process itself answers with `state`. */
const writes = (write: (out: Output) => void, state = "exited") => {
  control.node.onGuest = (call) => {
    if (call.call.endsWith("/logs")) return write(call.output());
    call.json({ name: "web", argv: ["x"], keep_alive: false, pid: 1, state, started_at_ms: 0 });
  };
};

/** Longer than the lease of the previous operation and the idle timeout's grace period. */
const untilPaused = (session: string) =>
  eventually(
    async () => expect((await control.ask(`GET /v1/sessions/${session}`)).body.state).toBe("paused"),
    30_000,
  );

describe("buffered", () => {
  test("both streams come in one body, without the optional fields when they do not apply", async () => {
    writes((out) => {
      out.stdout("one\n");
      out.stderr("warn\n");
      out.stdout("two\n");
      out.eof();
    });
    expect((await logs()).body).toEqual({ name: "web", stdout: "one\ntwo\n", stderr: "warn\n" });
    expect(control.node.guestCalls.map(({ call, query }) => [call, query])).toEqual([
      ["GET processes/web/logs", { tail_bytes: String(4 * MIB) }],
    ]);
  });

  test("an empty log is two empty streams", async () => {
    writes((out) => out.eof());
    expect((await logs("?follow=false")).body).toEqual({ name: "web", stdout: "", stderr: "" });
  });

  test("a cut stream begins with a whole character, and truncated is set", async () => {
    writes((out) => {
      out.stdout(Buffer.concat([Buffer.from("€").subarray(1), Buffer.from("uro")]));
      out.eof({ stdout_truncated: true });
    });
    expect((await logs()).body).toEqual({ name: "web", stdout: "uro", stderr: "", truncated: true });
  });

  test("a guest that sends more than 4 MiB of a stream is cut to the last of it", async () => {
    writes((out) => {
      out.stdout("first");
      for (let sent = 0; sent < 9 * MIB; sent += 65_536) out.stdout(Buffer.alloc(65_536, "x"));
      out.stdout("last");
      out.eof();
    });
    const { body } = await logs();
    expect(body.truncated).toBe(true);
    expect(body.stdout.length).toBe(4 * MIB);
    expect(body.stdout.endsWith("xlast")).toBe(true);
  });

  test("a stream that is not UTF-8 is base64 of its bytes, each on its own", async () => {
    writes((out) => {
      out.stdout(Buffer.from([0x80, 0xff, 0x61]));
      out.stderr("plain");
      out.eof({ stdout_truncated: true });
    });
    expect((await logs()).body).toEqual({
      name: "web",
      stdout: Buffer.from([0x80, 0xff, 0x61]).toString("base64"),
      stdout_encoding: "base64",
      stderr: "plain",
      truncated: true,
    });
  });

  test("a running process may have written half of a character: the rest comes next time", async () => {
    const half = Buffer.concat([Buffer.from("a"), Buffer.from("€").subarray(0, 2)]);
    const write = (out: Output) => {
      out.stdout(half);
      out.eof();
    };
    writes(write, "running");
    expect((await logs()).body).toEqual({ name: "web", stdout: "a", stderr: "" });
    writes(write, "exited");
    expect((await logs()).body).toMatchObject({ stdout: half.toString("base64"), stdout_encoding: "base64" });
  });

  test.each<[string, (out: Output) => void]>([
    ["breaks off", (out) => setTimeout(() => out.breakOff(), 20)],
    ["ends without its end", (out) => out.endWithoutExit()],
    ["is lost by the agent", (out) => out.error("lost")],
    ["ends like a command", (out) => out.exit(0)],
  ])("a log that %s is a retryable 503", async (_name, fault) => {
    writes((out) => {
      out.stdout("x");
      fault(out);
    });
    const answer = await logs();
    expect([answer.status, answer.body.code]).toEqual([503, "session_unavailable"]);
  });

  test("follow takes true, false, 1 and 0", async () => {
    for (const value of ["yes", "", "true&follow=true"]) {
      const { status, body } = await logs(`?follow=${value}`);
      expect([status, body.code]).toEqual([400, "validation"]);
      expect(body.error).toMatch(/^follow: /);
    }
  });
});

describe("follow", () => {
  test("replays and follows in the exact framing, and ends with eof and an empty data line", async () => {
    writes((out) => {
      out.stdout("one\n");
      out.stderr(Buffer.from([0xff]));
      setTimeout(() => {
        out.stdout("two");
        out.eof({ stdout_truncated: true });
      }, 50);
    });
    const answer = await logs("?follow=true");
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    expect(answer.text).toBe(
      "event: stdout\ndata: b25lCg==\n\n" +
        "event: stderr\ndata: /w==\n\n" +
        "event: stdout\ndata: dHdv\n\n" +
        "event: eof\ndata: \n\n",
    );
    expect(control.node.guestCalls[0]?.query).toEqual({ follow: "true" });
  });

  test("the log of an exited process without output has only eof", async () => {
    writes((out) => out.eof());
    expect((await logs("?follow=1")).text).toBe("event: eof\ndata: \n\n");
  });

  test("no event carries more than 32 KiB", async () => {
    const bytes = Buffer.from(Array.from({ length: 60_000 }, (_, index) => index % 251));
    writes((out) => {
      out.stderr(bytes);
      out.eof();
    });
    const chunks = [...(await logs("?follow=true")).text.matchAll(/event: stderr\ndata: (.*)\n\n/g)].map(
      ([, data]) => Buffer.from(data ?? "", "base64"),
    );
    expect(chunks.map((chunk) => chunk.length)).toEqual([32_768, 60_000 - 32_768]);
    expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
  });

  test.each<[string, (out: Output) => void]>([
    ["breaks off", (out) => out.breakOff()],
    ["ends without its end", (out) => out.endWithoutExit()],
    ["is lost by the agent", (out) => out.error("lost\nin the machine")],
    ["is garbage", (out) => out.raw(Buffer.from("garbage!"))],
  ])("a log that %s ends with one error, in plain text", async (_name, fault) => {
    writes((out) => {
      out.stdout("x");
      setTimeout(() => fault(out), 20);
    });
    const { status, text } = await logs("?follow=true");
    expect(status).toBe(200);
    // Output that arrives together with garbage is dropped as well.
    expect(text).toMatch(/^(event: stdout\ndata: eA==\n\n)?event: error\ndata: [^\n{]+\n\n$/);
  });

  test.each([
    ["paused", "POST", "/pause", /the session was paused; the process goes on after the wake/],
    ["destroyed", "DELETE", "", /the session was destroyed/],
  ])("a session that is %s ends it with an error", async (_name, method, verb, message) => {
    const victim = await control.createLive();
    writes((out) => void out.stdout("x"));
    const follow = logs("?follow=true", victim);
    await eventually(() => expect(control.node.guestCalls).toHaveLength(1));
    await control.ask(`${method} /v1/sessions/${victim}${verb}`);
    const { text } = await follow;
    expect(text.startsWith("event: stdout\ndata: eA==\n\nevent: error\ndata: ")).toBe(true);
    expect(text).toMatch(message);
    expect(text.match(/event: (eof|error)/g)).toHaveLength(1);
  });

  test("a client that leaves ends the call to the guest, and nothing else", async () => {
    writes((out) => void out.stdout("x"));
    const { port } = control.app.server.server.address() as AddressInfo;
    const path = `/v1/sessions/${id}/processes/web/logs?follow=true`;
    const sent = request({
      host: "127.0.0.1",
      port,
      path,
      headers: { authorization: `Bearer ${control.key}` },
    });
    sent.on("error", () => {}).end();
    await new Promise((resolve) => sent.once("response", resolve));
    sent.destroy();
    await control.node.guestCalls[0]?.gone;
    expect(control.node.guestCalls).toHaveLength(1);
  });

  test("any number of followers may read the same log", async () => {
    const outs: Output[] = [];
    writes((out) => void outs.push(out));
    const follows = Array.from({ length: 5 }, () => logs("?follow=true"));
    await eventually(() => expect(outs).toHaveLength(5));
    for (const out of outs) {
      out.stdout("x");
      out.eof();
    }
    for (const { text } of await Promise.all(follows)) expect(text).toMatch(/^event: stdout/);
  });

  test("a follow does not keep the session from being idle", async () => {
    const lazy = await control.createLive({ idle_timeout_ms: 1 });
    writes(() => {});
    const follow = logs("?follow=true", lazy);
    await untilPaused(lazy);
    expect((await follow).text).toMatch(/event: error\ndata: the session was paused/);
  });
});
