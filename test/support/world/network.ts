/**
 * A world for one test file, with the shared service of all network tests, which uses the world's name server:
 * everything that guests reach is in the world's log.
 */

import { UndoStack } from "@vivarium/kit/undo-stack";
import { Client } from "@vivarium/sdk";
import { type Answer, type Ask, askAt } from "../asking.ts";
import type { ServiceFacts } from "../service.ts";
import { sharedService } from "../shared-service.ts";
import { Guest } from "./guest.ts";
import { startWorld, type World } from "./world.ts";

export interface Network {
  world: World;
  facts: ServiceFacts;
  client: Client;
  ask(path: string, options?: Ask): Promise<Answer>;
  /** Creates a live session with the files for probes. */
  guest(request?: object): Promise<Guest>;
  /** Sets a guest's policy, which is in force when this resolves. */
  allow(guest: Guest, mode: "allow" | "deny", allow?: string[]): Promise<void>;
  /** Ends all sessions, and the world. */
  close(): Promise<void>;
}

export async function startNetwork(): Promise<Network> {
  const undo = new UndoStack();
  try {
    const world = await startWorld();
    undo.push("world", () => world.close());
    const facts = sharedService();
    const client = new Client({ url: facts.url, apiKey: facts.apiKey, retries: 0 });
    undo.push("sessions", () => endAll(client));
    const ask = (path: string, options: Ask = {}) => askAt(facts, path, options);
    return {
      ...{ world, facts, client, ask },
      guest: (request = {}) => startGuest(client, world, request),
      allow: (guest, mode, allow = []) => setPolicy(ask, guest, { mode, allow }),
      close: () => undo.unwind(),
    };
  } catch (error) {
    await undo.unwind();
    throw error;
  }
}

async function startGuest(client: Client, world: World, request: object): Promise<Guest> {
  const { session_id } = await client.sessions.create(request);
  await client.sessions.waitUntilLive(session_id);
  const guest = new Guest(client, session_id);
  await guest.equip(world.ca);
  return guest;
}

async function setPolicy(ask: Network["ask"], { id }: Guest, policy: object): Promise<void> {
  const { status, body } = await ask(`/v1/sessions/${id}/egress`, { body: policy });
  if (status !== 200) throw new Error(`the policy was refused with ${status}: ${JSON.stringify(body)}`);
}

async function endAll(client: Client): Promise<void> {
  const { sessions } = await client.sessions.list({ limit: 100 });
  for (const { session_id } of sessions) await client.sessions.delete(session_id).catch(() => {});
}
