/** Decides which answer a machine gets about a name (docs/guide/network.md has the table). */
import type { EgressReason } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import { normaliseName } from "../policy/names.ts";
import { portsFor, WEB_PORTS } from "../policy/rules.ts";
import type { CurrentTables, MachineSlot } from "../tables/current-tables.ts";
import type { NodeClient } from "../tables/node-client.ts";
import type { PerMachine } from "../tables/per-machine.ts";
import type { NameRateLimit } from "./name-rate-limit.ts";
import { pinAddresses } from "./pin-addresses.ts";
import { type Question, TYPE } from "./question.ts";
import { readAll } from "./read-addresses.ts";
import { RCODE, writeAddresses, writeReply } from "./reply.ts";
import type { Resolver } from "./resolver.ts";

export interface AnswerDeps {
  tables: CurrentTables;
  resolver: Resolver;
  node: NodeClient;
  nameRateLimits: PerMachine<NameRateLimit>;
  log: Log;
}

export interface Answer {
  reply: Buffer;
  isAllowed: boolean;
  reason: EgressReason;
  address?: string;
}

/** Names of metadata services. Their address is never reachable, so they are refused without asking a name server. */
const METADATA_NAMES = new Set([
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "metadata.azure.internal",
  "metadata.tencentyun.com",
  "instance-data",
  "instance-data.ec2.internal",
]);

export async function answerQuestion(
  deps: AnswerDeps,
  slot: MachineSlot,
  question: Question,
): Promise<Answer> {
  if (METADATA_NAMES.has(question.name)) return refuse(question, RCODE.noSuchName, "never_address");
  return slot.rules.mode === "deny"
    ? answerDenying(deps, slot, question)
    : answerAllowing(deps, slot, question);
}

/** Mode `deny`: a name outside the policy is never sent to a name server. */
async function answerDenying(deps: AnswerDeps, slot: MachineSlot, question: Question): Promise<Answer> {
  const name = normaliseName(question.name);
  const ports = name === null ? new Set<number>() : portsFor(slot.rules, name);
  if (name === null || ports.size === 0) return refuse(question, RCODE.refused, "name_not_allowed");
  if (question.type !== TYPE.A) return noData(question, "name_allowed");
  if (!deps.nameRateLimits.of(slot.machineId).admits(name))
    return refuse(question, RCODE.refused, "too_many_names");
  const pinned = [...ports].filter((port) => !WEB_PORTS.includes(port));
  return answerAddresses(deps, slot, question, { name, pinned, reason: "name_allowed" });
}

async function answerAllowing(deps: AnswerDeps, slot: MachineSlot, question: Question): Promise<Answer> {
  const { name, type } = question;
  if (type === TYPE.AXFR || type === TYPE.IXFR) return refuse(question, RCODE.refused, "name_not_allowed");
  const hasNothing = type === TYPE.AAAA || type === TYPE.HTTPS || type === TYPE.SVCB || type === TYPE.ANY;
  if (hasNothing) return noData(question, "mode_allow");
  if (!deps.nameRateLimits.of(slot.machineId).admits(name))
    return refuse(question, RCODE.refused, "too_many_names");
  if (type !== TYPE.A) return passOn(deps, slot, question);
  return answerAddresses(deps, slot, question, { name, pinned: [], reason: "mode_allow" });
}

async function answerAddresses(
  deps: AnswerDeps,
  slot: MachineSlot,
  question: Question,
  wish: { name: string; pinned: number[]; reason: EgressReason },
): Promise<Answer> {
  const resolution = await deps.resolver.resolve(slot.machineId, wish.name);
  if (resolution.result === "failed") return refuse(question, RCODE.serverFailure, "not_resolved");
  if (resolution.result === "none") return refuse(question, resolution.rcode, "not_resolved");
  if (resolution.result === "never") {
    return { ...refuse(question, RCODE.noSuchName, "never_address"), address: resolution.addresses[0] };
  }
  const { addresses, ttlS } = resolution;
  if (!(await pinAddresses(deps, slot, { host: wish.name, ports: wish.pinned, addresses, ttlS }))) {
    return refuse(question, RCODE.serverFailure, "policy_changed");
  }
  const reply = writeAddresses(question, addresses, ttlS);
  return { reply, isAllowed: true, reason: wish.reason, address: addresses[0] };
}

/** Passes the name server's answer on unchanged, unless it contains a forbidden address or service bindings. */
async function passOn(deps: AnswerDeps, slot: MachineSlot, question: Question): Promise<Answer> {
  try {
    const answer = await deps.resolver.ask(slot.machineId, question.raw);
    const { addresses, hasServiceBindings } = readAll(answer);
    if (hasServiceBindings) return noData(question, "mode_allow");
    const hidden = addresses.find((address) => deps.tables.isNever(address));
    if (hidden !== undefined) {
      return { ...refuse(question, RCODE.noSuchName, "never_address"), address: hidden };
    }
    const reply = Buffer.from(answer);
    reply.writeUInt16BE(question.id, 0);
    return { reply, isAllowed: true, reason: "mode_allow" };
  } catch (error) {
    deps.log.debug({ err: error }, "a question could not be passed on");
    return refuse(question, RCODE.serverFailure, "not_resolved");
  }
}

function noData(question: Question, reason: EgressReason): Answer {
  return { reply: writeReply(question, RCODE.noError), isAllowed: true, reason };
}

function refuse(question: Question, rcode: number, reason: EgressReason): Answer {
  return { reply: writeReply(question, rcode), isAllowed: false, reason };
}
