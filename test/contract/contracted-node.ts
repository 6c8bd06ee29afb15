/** Shared by the suites of the contract: a node, a running machine, and refusals. */
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect } from "vitest";
import type { NodeCaller } from "../support/node-caller.ts";

export interface ContractedNode extends NodeCaller {
  close?: () => Promise<void>;
}

/** Scenarios share one machine unless they end it, because a start is the expensive part. */
export interface OneMachine {
  /** Set once the tests run. */
  readonly node: ContractedNode;
  readonly machineId: string;
  /** A path of the machine. */
  readonly path: string;
}

export const startSpec = (over: object = {}) => ({
  template: "base",
  size: "small",
  hostname: "contract",
  no_sudo: false,
  ...over,
});

export const sh = (script: string) => ["sh", "-c", script];
export const machinePath = (id: string) => `/v1/machines/${id}`;
export const newMachineId = () => `${randomId()}-1`;

export function withMachine(makeNode: () => Promise<ContractedNode>, spec: object = {}): OneMachine {
  let node: ContractedNode;
  const machineId = newMachineId();
  const path = machinePath(machineId);
  beforeAll(async () => {
    node = await makeNode();
    expect(await node.call("PUT", path, startSpec(spec))).toMatchObject({ status: 200 });
  });
  afterAll(async () => {
    await node?.call("DELETE", path);
    await node?.close?.();
  });
  return {
    get node() {
      return node;
    },
    machineId,
    path,
  };
}

export function refusal(status: number, code: string) {
  return { status, body: { code, message: expect.stringMatching(/./) } };
}
