import type { Readable } from "node:stream";
import { z } from "zod";
import { NodeError } from "../node-error.ts";
import { type AgentClient, agentRefusal, readJson } from "./client.ts";

const Written = z.object({ bytes: z.int().min(0) });

/** Streams a file into the guest; the agent writes it beside its target and renames it into place. */
export async function writeGuestFile(
  agent: AgentClient,
  target: { path: string; mode?: string },
  content: Readable,
): Promise<{ bytes: number }> {
  const query = new URLSearchParams({ path: target.path, ...(target.mode ? { mode: target.mode } : {}) });
  const answer = await agent.request("PUT", `/v1/files?${query}`, undefined, content);
  const body = await readJson(answer.stream);
  if (answer.status !== 200) throw agentRefusal(body);
  const written = Written.safeParse(body);
  if (!written.success) throw new NodeError("agent_unavailable", "the agent answered outside its contract");
  return written.data;
}
