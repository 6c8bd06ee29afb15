/** `/v1/machines/{id}/guest/…` of the fake node: files and processes of a machine. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { PROCESS_NAME_PATTERN } from "@vivarium/contract/api";
import type { ProcessSpec } from "@vivarium/contract/guest";
import { translateCommand } from "./exec.ts";
import { asGuest, deleteFile, listFiles, makeDirectory, readFile, renameFile, writeFile } from "./files.ts";
import { listFrames } from "./lists.ts";
import type { FakeMachine } from "./machine.ts";
import { running } from "./machine-table.ts";
import { Output } from "./output.ts";
import { findProcess, killProcess, listProcesses, sendLog, startProcess } from "./processes.ts";
import { answer, Refusal, refuse } from "./refusal.ts";
import { findFiles, grepFiles, matchFiles } from "./search.ts";
import type { NodeState } from "./state.ts";

interface GuestParts {
  machineId: string;
  /** Path below `guest/`. */
  path: string;
  searchParams: URLSearchParams;
  request: IncomingMessage;
  response: ServerResponse;
}

/** A call below `guest/`, which a test can answer itself. */
export class GuestRequest {
  readonly machineId: string;
  /** Method and path, for example `"GET files/read"`. */
  readonly call: string;
  readonly query: Record<string, string>;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Resolves when control closes the connection. */
  readonly gone: Promise<void>;

  constructor({ machineId, path, searchParams, request, response }: GuestParts) {
    this.machineId = machineId;
    this.call = `${request.method} ${path}`;
    this.query = Object.fromEntries(searchParams);
    this.request = request;
    this.response = response;
    this.gone = new Promise((resolve) => response.once("close", resolve));
  }
  body(): Promise<Buffer> {
    return buffer(this.request);
  }
  /** Answers with JSON, or with frames if the call returns a list. */
  json(answerBody: unknown): void {
    const list = listFrames(this.call, answerBody as object);
    if (list) this.response.writeHead(200).end(list);
    else answer(this.response, answerBody);
  }
  /** Answers with raw bytes and their length, as a file read does. */
  bytes(content: Buffer): void {
    this.response.writeHead(200, { "content-length": content.length }).end(content);
  }
  output(): Output {
    return new Output(this.response);
  }
  breakOff(): void {
    this.response.destroy();
  }
}

type Answerer = (
  machine: FakeMachine,
  call: { name: string; query: URLSearchParams; request: IncomingMessage; response: ServerResponse },
) => unknown;

const json = async <T>(request: IncomingMessage) => JSON.parse((await buffer(request)).toString()) as T;

/** Handlers by method and path. A result that is not undefined is sent; a handler may also answer by itself. */
const CALLS: Readonly<Record<string, Answerer>> = {
  // A fake machine's commands never go into a snapshot.
  "GET commands": () => ({ going_on: 0 }),
  "GET files/read": (machine, { query, response }) => readFile(machine, query, response),
  "GET files/list": (machine, { query }) => listFiles(machine, query),
  "GET files/find": (machine, { query }) => findFiles(machine, query),
  "GET files/match": (machine, { query }) => matchFiles(machine, query),
  "GET files/grep": (machine, { query }) => grepFiles(machine, query),
  "PUT files/write": (machine, { query, request }) => writeFile(machine, query, request),
  "DELETE files": (machine, { query }) => deleteFile(machine, query),
  "POST files/mkdir": async (machine, { request }) => makeDirectory(machine, await json(request)),
  "POST files/rename": async (machine, { request }) => renameFile(machine, await json(request)),
  "GET processes": listProcesses,
  "POST processes": async (machine, { request }) => {
    const spec = await json<ProcessSpec>(request);
    return await startProcess(machine, spec, await translateCommand(machine, spec));
  },
  "GET processes/{name}": (machine, { name }) => findProcess(machine, name).info,
  "DELETE processes/{name}": (machine, { name }) => killProcess(machine, name),
  "GET processes/{name}/logs": (machine, { name, query, response }) =>
    sendLog(machine, name, query, response),
};

export async function serveGuest(state: NodeState, parts: GuestParts): Promise<void> {
  const { machineId, path, searchParams: query, request, response } = parts;
  const asked = new GuestRequest(parts);
  state.guestCalls.push(asked);
  const machine = running(state, machineId);
  const [, name = ""] = /^processes\/([^/]+)/.exec(path) ?? [];
  const isName = PROCESS_NAME_PATTERN.test(name);
  const answerer = CALLS[`${request.method} ${isName ? path.replace(`/${name}`, "/{name}") : path}`];
  if (!answerer) throw new Refusal("invalid", "no such call of a machine's guest");
  const code = request.method === "GET" ? "agent_unavailable" : "outcome_unknown";
  const end = () => refuse(response, new Refusal(code, "the agent broke the connection"));
  machine.underWay.add(end);
  response.once("close", () => machine.underWay.delete(end));
  await state.onGuest(asked, async () => {
    if (path.startsWith("files")) await machine.withFiles();
    const result = await asGuest(Promise.resolve(answerer(machine, { name, query, request, response })));
    if (result !== undefined) asked.json(result);
  });
}
