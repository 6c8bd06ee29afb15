/** Terminals and the tunnel of a machine. */
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import { encodeTerminalFrame, TERMINAL_FRAME, TerminalFrameDecoder } from "@vivarium/contract/guest";
import { randomId } from "@vivarium/kit/id";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { type OneMachine, refusal, sh, startSpec } from "../contracted-node.ts";
import { guestCalls } from "./calls.ts";

export function guestStreams(one: OneMachine): void {
  const { machineId } = one;
  const { openStream, run } = guestCalls(one);

  describe("a terminal", () => {
    const spec = { env: { TERM: "xterm" }, rows: 31, cols: 91 };

    test("runs its program in a terminal of its size, and ends with its exit", async () => {
      const socket = await openStream("terminals", { ...spec, argv: sh("stty size; echo $TERM; exit 7") });
      const { output, exit } = readTerminal(await buffer(socket));
      expect(output).toMatch(/31 91\r\nxterm\r\n/);
      expect(exit).toBe(7);
    });

    test("passes on keystrokes", async () => {
      const argv = sh("read line; echo got $line");
      const socket = await openStream("terminals", { ...spec, argv });
      socket.write(encodeTerminalFrame(TERMINAL_FRAME.data, Buffer.from("words\r")));
      const { output, exit } = readTerminal(await buffer(socket));
      expect(output).toContain("got words\r\n");
      expect(exit).toBe(0);
    });

    test("is hung up when its client leaves", async () => {
      const tag = `31${Date.now() % 1_000_000}`;
      const count = async () => Number(await run(`pgrep -xfc 'sleep ${tag}'`));
      const socket = await openStream("terminals", { ...spec, argv: ["sleep", tag] });
      await eventually(async () => expect(await count()).toBe(1));
      socket.destroy();
      await eventually(async () => expect(await count()).toBe(0));
    });

    test("is refused with a reason if its opening is malformed, or its cwd is missing", async () => {
      const unfit = await one.node.stream(machineId, "terminals", { ...spec, rows: 0 });
      expect(unfit).toMatchObject({ refusal: { code: "invalid" } });
      const lost = await one.node.stream(machineId, "terminals", { ...spec, cwd: "/no/such/place" });
      expect(lost).toMatchObject({ refusal: { code: "cwd_not_found" } });
    });

    test("of an unknown machine is refused before the upgrade", async () => {
      const nobody = await one.node.stream(`${randomId()}-1`, "terminals", spec);
      expect(nobody).toMatchObject({ refusal: { code: "machine_not_found" } });
    });
  });

  test("the tunnel leads to an SSH server", async () => {
    const socket = await openStream("tunnel", { env: {} });
    const arrived = once(socket, "data");
    socket.resume();
    expect(String((await arrived)[0])).toMatch(/^SSH-2\.0-/);
    socket.destroy();
  });

  test("breaks off when its machine is held, and when it is deleted", async () => {
    const doomed = `${randomId()}-1`;
    const snapshot = `chk_${randomId()}`;
    await one.node.call("PUT", `/v1/machines/${doomed}`, startSpec({ hostname: "doomed" }));
    const open = async () => {
      const stream = await one.node.stream(doomed, "tunnel", { env: {} });
      if ("refusal" in stream) throw new Error(stream.refusal.message);
      return { closed: once(stream.socket.resume(), "close") };
    };
    try {
      const held = await open();
      await one.node.call("PUT", `/v1/snapshots/${snapshot}`, { machine_id: doomed, after: "hold" });
      await held.closed;
      const refused = await one.node.guest(doomed, "GET", "/files/list?path=.");
      expect(refused).toMatchObject(refusal(409, "machine_held"));
      expect(await one.node.stream(doomed, "tunnel", { env: {} })).toMatchObject({
        refusal: { code: "machine_held" },
      });
      await one.node.call("POST", `/v1/machines/${doomed}/continue`);
      const deleted = await open();
      await one.node.call("DELETE", `/v1/machines/${doomed}`);
      await deleted.closed;
    } finally {
      await one.node.call("DELETE", `/v1/machines/${doomed}`);
      await one.node.call("DELETE", `/v1/snapshots/${snapshot}`);
    }
  });
}

/** All output of a terminal; its exit is the last frame. */
function readTerminal(bytes: Buffer) {
  const frames = [...new TerminalFrameDecoder().push(bytes)];
  const shown = frames.filter(({ type }) => type === TERMINAL_FRAME.data).map(({ payload }) => payload);
  const last = frames.at(-1);
  expect(last?.type).toBe(TERMINAL_FRAME.exit);
  return { output: Buffer.concat(shown).toString(), exit: last?.payload.readInt32BE() };
}
