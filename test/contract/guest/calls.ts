/** Calls to the guest of the machine that the scenarios share. Each scenario uses paths and names of its own. */
import type { Socket } from "node:net";
import { LISTS } from "@vivarium/contract/guest";
import { readList } from "@vivarium/contract/test-support/lists";
import { type OneMachine, sh } from "../contracted-node.ts";

export function guestCalls(one: OneMachine) {
  const { machineId } = one;
  const ask = (method: string, target: string, body?: object | Buffer) =>
    one.node.guest(machineId, method, target, body);
  return {
    ask,
    run: async (script: string) => (await one.node.exec(machineId, { argv: sh(script) })).stdout.toString(),
    write: (file: string, content: string | Buffer) =>
      ask("PUT", `/files/write?path=${encodeURIComponent(file)}`, Buffer.from(content)),
    read: (file: string, more = "") => ask("GET", `/files/read?path=${encodeURIComponent(file)}${more}`),
    list: async (dir: string) => {
      const { items, end } = readList(LISTS.entries, (await ask("GET", `/files/list?path=${dir}`)).bytes);
      return { entries: items, ...end };
    },
    begin: (method: string, target: string) => one.node.beginGuest(machineId, method, target),
    openStream: async (kind: "terminals" | "tunnel", spec: object): Promise<Socket> => {
      const stream = await one.node.stream(machineId, kind, spec);
      if ("refusal" in stream) throw new Error(`${stream.refusal.code}: ${stream.refusal.message}`);
      return stream.socket;
    },
  };
}
