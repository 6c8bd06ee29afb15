import { createHash } from "node:crypto";
import { PassThrough } from "node:stream";
import { MIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, expect, it } from "vitest";
import { z } from "zod";
import { type ScriptedAgent, startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { AgentClient } from "./client.ts";
import { uploadToGuest } from "./uploads.ts";

let agent: ScriptedAgent;
let client: AgentClient;
afterEach(async () => {
  client.close();
  await agent.close();
});

const answer = z.object({ bytes: z.int() });

async function upload(
  handle: Parameters<typeof startScriptedAgent>[0]["handle"],
  source: PassThrough,
  standstillMs = 300,
) {
  agent = await startScriptedAgent({ handle });
  client = new AgentClient(agent.socketPath);
  const request = { method: "PUT", path: "/v1/files/write?path=a", source, answer };
  return await uploadToGuest(client, request, standstillMs);
}

it("a stalled source is given up, and the agent's stream is reset", async () => {
  const end = Promise.withResolvers<string>();
  const source = new PassThrough();
  source.write("x");
  const given = upload((request) => {
    request.stream.once("aborted", () => end.resolve("reset"));
    request.stream.once("end", () => end.resolve("end")).resume();
  }, source);
  await expect(given).rejects.toMatchObject({ code: "invalid", message: "the body stood still for 300 ms" });
  expect(await end.promise).toBe("reset");
});

it("an agent that reads nothing of the body is unavailable", async () => {
  const source = new PassThrough();
  source.write(Buffer.alloc(4 * MIB));
  await expect(upload(() => {}, source)).rejects.toMatchObject({ code: "agent_unavailable" });
});

it("an agent that does not answer the whole body is unavailable", async () => {
  const source = new PassThrough();
  source.end("x");
  const given = upload((request) => void request.resume(), source);
  await expect(given).rejects.toMatchObject({ code: "agent_unavailable" });
});

it("a body that moves slowly may take longer than the limit for a stalled one", async () => {
  const source = new PassThrough();
  const handle: Parameters<typeof upload>[0] = (request, response) => {
    let bytes = 0;
    request.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    request.on("end", () => response.end(JSON.stringify({ bytes })));
  };
  const given = upload(handle, source, 2_000 * SLOWNESS);
  for (let sent = 0; sent < 8; sent++) {
    source.write("x");
    await new Promise((resolve) => setTimeout(resolve, 300 * SLOWNESS));
  }
  source.end();
  const sha256 = createHash("sha256").update("x".repeat(8)).digest("hex");
  expect(await given).toEqual({ bytes: 8, sha256 });
});

it("a source that broke off before its upload began has failed", async () => {
  const source = new PassThrough();
  source.destroy();
  await expect(upload(() => {}, source)).rejects.toMatchObject({ code: "invalid" });
});
