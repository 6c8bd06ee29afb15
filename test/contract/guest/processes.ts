/** Named processes of a guest. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { buffer } from "node:stream/consumers";
import { FRAME, FrameDecoder, GuestProcess, LISTS, LogEnd } from "@vivarium/contract/guest";
import { readList } from "@vivarium/contract/test-support/lists";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { type OneMachine, refusal, sh } from "../contracted-node.ts";
import { guestCalls } from "./calls.ts";

export function guestProcesses(one: OneMachine): void {
  const { ask, begin, run } = guestCalls(one);

  describe("a named process", () => {
    const start = (name: string, script: string) =>
      ask("POST", "/processes", { name, argv: sh(script), env: { WORD: "hello" }, keep_alive: false });
    const get = async (name: string) => GuestProcess.parse((await ask("GET", `/processes/${name}`)).body);
    const logs = async (name: string, query: string) =>
      readLog((await ask("GET", `/processes/${name}/logs?${query}`)).bytes);

    test("runs under its name until it exits, and its log survives it", async () => {
      const started = GuestProcess.parse((await start("short", "echo $WORD; echo no >&2; exit 3")).body);
      expect(started).toMatchObject({
        name: "short",
        argv: expect.arrayContaining(["-c"]),
        keep_alive: false,
      });
      expect(started.pid).toBeGreaterThan(0);
      await eventually(async () =>
        expect(await get("short")).toMatchObject({ state: "exited", exit_code: 3 }),
      );
      expect(await logs("short", "tail_bytes=1000")).toMatchObject({ stdout: "hello\n", stderr: "no\n" });
      expect(await logs("short", "tail_bytes=3")).toMatchObject({
        stdout: "lo\n",
        end: { stdout_truncated: true, stderr_truncated: false },
      });
      expect(await logs("short", "follow=true")).toMatchObject({ stdout: "hello\n", stderr: "no\n" });
    });

    test("that cannot be spawned has exited at once, and its log says why", async () => {
      const body = { name: "absent", argv: ["no-such-command"], env: {}, keep_alive: true };
      const answer = await ask("POST", "/processes", body);
      expect(GuestProcess.parse(answer.body)).toMatchObject({
        state: "exited",
        exit_code: 127,
        keep_alive: true,
      });
      expect((await logs("absent", "tail_bytes=1000")).stderr).toMatch(/^.+\n$/);
    });

    test("is one at a time, and its name is free again once it has exited", async () => {
      await start("twin", "sleep 600");
      expect(await start("twin", "true")).toMatchObject(refusal(409, "process_exists"));
      const killed = GuestProcess.parse((await ask("DELETE", "/processes/twin")).body);
      expect(killed).toMatchObject({ state: "exited", exit_code: 143 });
      expect(await ask("DELETE", "/processes/twin")).toMatchObject({ status: 200, body: killed });
      expect(await start("twin", "true")).toMatchObject({ status: 200 });
      const { items } = readList(LISTS.processes, (await ask("GET", "/processes")).bytes);
      expect(items.filter(({ name }) => name === "twin")).toHaveLength(1);
    });

    test("that ignores SIGTERM is killed", async () => {
      await start("stubborn", "trap '' TERM; echo ready; while :; do sleep 1; done");
      await eventually(async () =>
        expect(await logs("stubborn", "tail_bytes=10")).toMatchObject({ stdout: "ready\n" }),
      );
      const killed = await ask("DELETE", "/processes/stubborn");
      expect(killed).toMatchObject({ status: 200, body: { exit_code: 137 } });
    });

    test("that is unknown, or whose cwd is missing, is refused", async () => {
      const unknown = refusal(404, "process_not_found");
      expect(await ask("GET", "/processes/nobody")).toMatchObject(unknown);
      expect(await ask("DELETE", "/processes/nobody")).toMatchObject(unknown);
      expect(await ask("GET", "/processes/nobody/logs?tail_bytes=1")).toMatchObject(unknown);
      const lost = { name: "lost", argv: ["true"], env: {}, cwd: "/no/such/place", keep_alive: false };
      expect(await ask("POST", "/processes", lost)).toMatchObject(refusal(400, "cwd_not_found"));
    });

    test("is followed as it writes, up to its end, and continues when a follower leaves", async () => {
      await start("ticks", "echo first; while [ ! -e go ]; do sleep 0.1; done; echo last");
      const leaving = await follow("ticks");
      leaving.response.destroy();
      const staying = await follow("ticks");
      await run("touch go");
      const log = readLog(Buffer.concat([staying.first, await buffer(staying.response)]));
      expect(log).toMatchObject({ stdout: "first\nlast\n", stderr: "" });
      await eventually(async () =>
        expect(await get("ticks")).toMatchObject({ state: "exited", exit_code: 0 }),
      );
    });

    async function follow(name: string) {
      const call = begin("GET", `/processes/${name}/logs?follow=true`).end();
      const [response] = (await once(call, "response")) as [IncomingMessage];
      const [first] = (await once(response, "data")) as [Buffer];
      response.pause();
      return { response, first };
    }
  });
}

/** A whole log; its end is the last frame. */
function readLog(bytes: Buffer) {
  const frames = [...new FrameDecoder().push(bytes)];
  const text = (type: number) =>
    Buffer.concat(frames.filter((frame) => frame.type === type).map(({ payload }) => payload)).toString();
  const last = frames.at(-1);
  expect(last?.type).toBe(FRAME.eof);
  return {
    stdout: text(FRAME.stdout),
    stderr: text(FRAME.stderr),
    end: LogEnd.parse(JSON.parse(String(last?.payload))),
  };
}
