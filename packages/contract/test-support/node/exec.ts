/** Runs commands of a fake machine on this host, and keeps the files that control writes. */
import { mkdir, rename, stat, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { dirname, isAbsolute, join, normalize } from "node:path";
import { ExecCall } from "@vivarium/contract/node";
import { streamHostCommand } from "./host-command.ts";
import type { FakeMachine } from "./machine.ts";
import { running } from "./machine-table.ts";
import { Output } from "./output.ts";
import { Refusal, refuse, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

export async function exec(
  state: NodeState,
  machineId: string,
  body: unknown,
  response: ServerResponse,
): Promise<void> {
  const machine = running(state, machineId);
  const call = valid(ExecCall.safeParse(body));
  state.execs.push({ ...call, machineId });
  const end = () => refuse(response, new Refusal("outcome_unknown", "the agent broke the connection"));
  machine.underWay.add(end);
  response.once("close", () => machine.underWay.delete(end));
  const proceed = () => execOnHost(machine, call, response);
  await state.onExec(call, () => new Output(response), proceed);
}

async function execOnHost(machine: FakeMachine, call: ExecCall, response: ServerResponse): Promise<void> {
  if (call.argv[0] === "") throw new Refusal("invalid", "argv must not start with an empty string");
  const command = await translateCommand(machine, call);
  const gone = new AbortController();
  // A stopped machine cuts its callers off, but its commands are stopped and continue with it.
  response.once("close", () => {
    if (machine.state !== "held") gone.abort();
  });
  await streamHostCommand({
    call,
    ...command,
    out: response,
    onSpawned: () => {
      response.writeHead(200, { "content-type": "application/octet-stream" });
      response.flushHeaders();
    },
    signal: AbortSignal.any([gone.signal, machine.life.signal]),
    onGroup: (pgid) => machine.groups.add(pgid),
  });
}

export interface Command {
  argv?: string[];
  cwd?: string;
  env: Record<string, string>;
}

export interface TranslatedCommand {
  argv: string[];
  cwd: string;
  env: Record<string, string>;
}

/** Translates a guest command to paths and environment of this host. */
export async function translateCommand(
  machine: FakeMachine,
  { argv = [], cwd, env }: Command,
): Promise<TranslatedCommand> {
  await machine.withFiles();
  return {
    argv: argv.map((argument) => toHostText(machine, argument)),
    cwd: await workingDirectory(machine, cwd),
    env: { ...baseEnvironment(machine), ...env },
  };
}

function baseEnvironment(machine: FakeMachine): Record<string, string> {
  return {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: join(machine.dir, "home"),
    USER: "sandbox",
    SHELL: "/bin/bash",
    LANG: "C.UTF-8",
  };
}

async function workingDirectory(machine: FakeMachine, cwd = "/workspace"): Promise<string> {
  const path = toHostText(machine, isAbsolute(cwd) ? normalize(cwd) : normalize(join("/workspace", cwd)));
  const info = await stat(path).catch((error: NodeJS.ErrnoException) => {
    throw error.code === "ENOTDIR"
      ? new Refusal("cwd_not_a_directory", `working directory ${cwd}: not a directory`)
      : new Refusal("cwd_not_found", `working directory ${cwd}: no such file or directory`);
  });
  if (info.isDirectory()) return path;
  throw new Refusal("cwd_not_a_directory", `working directory ${cwd}: not a directory`);
}

export interface Put {
  path: string;
  body: Buffer;
  response: ServerResponse;
}

/** Writes a file of control into the machine; undefined when a test has aborted the answer. */
export async function putFile(
  state: NodeState,
  machineId: string,
  { path, body, response }: Put,
): Promise<{ bytes: number } | undefined> {
  const machine = running(state, machineId);
  if (path === "" || path.includes("\0")) throw new Refusal("invalid", "path must be a non-empty path");
  state.onFile(path, response);
  if (response.destroyed) return undefined;
  state.files.set(path, body);
  const guestPath = isAbsolute(path) ? normalize(path) : normalize(join("/workspace", path));
  const isInside = guestPath.startsWith("/workspace/");
  const hostPath = isInside ? toHostText(machine, guestPath) : join(machine.dir, "outside", guestPath);
  if (!isInside) machine.placed.set(guestPath, hostPath);
  await mkdir(dirname(hostPath), { recursive: true });
  await writeFile(`${hostPath}.part`, body);
  await rename(`${hostPath}.part`, hostPath);
  return { bytes: body.length };
}

/** Replaces guest paths in a text by paths of this host, so that a command finds its files. */
function toHostText(machine: FakeMachine, text: string): string {
  let mapped = text.replaceAll(/(?<![\w.-])\/workspace(?![\w-])/g, join(machine.dir, "workspace"));
  for (const [guestPath, hostPath] of machine.placed) mapped = mapped.replaceAll(guestPath, hostPath);
  return mapped;
}
