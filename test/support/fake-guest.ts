/** `/v1/machines/{id}/guest/…` of the fake node. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { PROCESS_NAME_PATTERN } from "@vivarium/contract/api";
import type { ProcessSpec } from "@vivarium/contract/guest";
import {
  asGuest,
  deleteFile,
  listFiles,
  makeDirectory,
  readFile,
  renameFile,
  writeFile,
} from "./fake-files.ts";
import { type FakeMachine, Refusal } from "./fake-machine.ts";
import {
  findProcess,
  killProcess,
  listProcesses,
  type ProcessPlace,
  sendLog,
  startProcess,
} from "./fake-processes.ts";
import { findFiles, grepFiles } from "./fake-search.ts";
import { listFrames } from "./guest-lists.ts";

export interface GuestRequest {
  method: string;
  /** Below `guest`. */
  path: string;
  query: URLSearchParams;
  request: IncomingMessage;
  response: ServerResponse;
}
type PlaceOf = (machine: FakeMachine, spec: ProcessSpec) => Promise<ProcessPlace>;

/** Answers with what it resolves with, or has answered itself. */
export async function serveGuest(machine: FakeMachine, call: GuestRequest, placeOf: PlaceOf): Promise<void> {
  const { response, request } = call;
  const end = () => response.destroy();
  machine.underWay.add(end);
  response.once("close", () => machine.underWay.delete(end));
  try {
    const answer = await asGuest(answerTo(machine, call, placeOf));
    if (answer === undefined) return;
    const list = listFrames(call.method, call.path.slice(1), answer as object);
    if (list) response.writeHead(200).end(list);
    else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  } finally {
    request.resume();
  }
}

async function answerTo(machine: FakeMachine, call: GuestRequest, placeOf: PlaceOf): Promise<unknown> {
  const { method, path, query, request, response } = call;
  const json = async <T>() => JSON.parse((await buffer(request)).toString()) as T;
  const [, kind = "", name = "", logs = ""] = /^\/([a-z]+)(?:\/([^/]+))?(\/logs)?$/.exec(path) ?? [];
  if (kind === "processes" && name !== "" && PROCESS_NAME_PATTERN.test(name)) {
    if (logs !== "" && method === "GET") return sendLog(machine, name, query, response);
    if (logs === "" && method === "GET") return findProcess(machine, name).info;
    if (logs === "" && method === "DELETE") return await killProcess(machine, name);
  }
  switch (`${method} ${path}`) {
    case "GET /files/read":
      return await readFile(machine, query, response);
    case "GET /files/list":
      return await listFiles(machine, query);
    case "GET /files/find":
      return await findFiles(machine, query);
    case "GET /files/grep":
      return await grepFiles(machine, query);
    case "PUT /files/write":
      return await writeFile(machine, query, request);
    case "DELETE /files":
      return await deleteFile(machine, query);
    case "POST /files/mkdir":
      return await makeDirectory(machine, await json());
    case "POST /files/rename":
      return await renameFile(machine, await json());
    case "GET /processes":
      return listProcesses(machine);
    case "POST /processes": {
      const spec = await json<ProcessSpec>();
      return await startProcess(machine, spec, await placeOf(machine, spec));
    }
    default:
      throw new Refusal("invalid", "no such call of a machine's guest");
  }
}
