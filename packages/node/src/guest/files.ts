import type { Readable } from "node:stream";
import { z } from "zod";
import type { AgentClient } from "./client.ts";
import { uploadToGuest } from "./uploads.ts";

const Written = z.object({ bytes: z.int().min(0) });

/** Streams a file of the service into the guest. The agent writes it beside its target and renames it. */
export async function writeGuestFile(
  agent: AgentClient,
  target: { path: string; mode?: string },
  source: Readable,
): Promise<{ bytes: number }> {
  const query = new URLSearchParams({ path: target.path, ...(target.mode ? { mode: target.mode } : {}) });
  const upload = { method: "PUT", path: `/v1/files?${query}`, source, answer: Written };
  const { bytes } = await uploadToGuest(agent, upload);
  return { bytes };
}
