import { sleep } from "@vivarium/kit/clock";
import { afterEach, expect, it } from "vitest";
import { type ScriptedAgent, startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { AgentClient } from "../guest/client.ts";
import { NodeError } from "../node-error.ts";
import { openerOf } from "./layout-files.ts";

const MACHINE = `${"a".repeat(21)}-1`;
const { signal } = new AbortController();

let agent: ScriptedAgent;
let client: AgentClient;
const asked: string[] = [];
afterEach(async () => {
  client.close();
  await agent.close();
  asked.length = 0;
});

async function start(handle: Parameters<typeof startScriptedAgent>[0]["handle"]) {
  agent = await startScriptedAgent({
    handle: (request, response) => {
      asked.push(request.url ?? "");
      return handle?.(request, response);
    },
  });
  client = new AgentClient(agent.socketPath);
  return openerOf({ agentOf: () => client }, { machineId: MACHINE }, "/workspace/image");
}

const readAll = async (content: AsyncIterable<Uint8Array> | undefined) => {
  const chunks: Uint8Array[] = [];
  for await (const chunk of content ?? []) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
};

it("a file of the layout is read below its directory, through no link", async () => {
  const open = await start((_request, response) => {
    response.writeHead(200, { "content-length": "4" });
    response.end("text");
  });
  const file = await open("blobs/sha256/00", signal);
  expect(file?.sizeBytes).toBe(4);
  expect(await readAll(file?.content)).toBe("text");
  const [path, query] = asked[0]?.split("?") ?? [];
  expect(path).toBe("/v1/files/read");
  expect(Object.fromEntries(new URLSearchParams(query))).toEqual({
    path: "/workspace/image/blobs/sha256/00",
    plain: "true",
  });
});

it.each([
  ["no_such_file", "none"],
  // A link anywhere in the path.
  ["bad_path", "none"],
  ["not_a_regular_file", "none"],
  ["internal", "an error"],
])("a path that the guest refuses with %s is %s", async (code, outcome) => {
  const open = await start((_request, response) => {
    response.writeHead(400);
    response.end(JSON.stringify({ code, message: "no" }));
  });
  const opening = open("index.json", signal);
  if (outcome === "none") expect(await opening).toBeUndefined();
  else await expect(opening).rejects.toMatchObject({ code: "internal" });
});

it("a file that ends early is a fault that passes, also before anybody reads it", async () => {
  const open = await start((_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("text");
    setImmediate(() => response.stream.close());
  });
  const file = await open("index.json", signal);
  // Long enough for the break to arrive, whose error nobody has asked for yet. Without that the test shows less, and passes.
  await sleep(50);
  await expect(readAll(file?.content)).rejects.toMatchObject({ code: "agent_unavailable" });
});

it("a machine that does not run is the error that its table has", async () => {
  await start(() => {});
  const held = new NodeError("machine_held", "it is held");
  const agentOf = () => {
    throw held;
  };
  const open = openerOf({ agentOf }, { machineId: MACHINE }, "/workspace/image");
  await expect(open("index.json", signal)).rejects.toBe(held);
});
