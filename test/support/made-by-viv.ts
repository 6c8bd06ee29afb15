/** Sessions and checkpoints that tests make with viv, and delete when their file is over. */
import { afterAll } from "vitest";
import { viv } from "./command-line.ts";
import { client } from "./http.ts";

const made = { sessions: [] as string[], checkpoints: [] as string[] };

/** Remembers an id, to delete what it names at the end. */
export function keep(kind: keyof typeof made, id: string): string {
  made[kind].push(id);
  return id;
}

export const inside = (id: string, script: string) => viv("exec", id, "--", "sh", "-c", script);
export const create = async (...options: string[]) =>
  keep("sessions", await viv("create", "--wait", ...options));

export function deleteMadeAtEnd(): void {
  afterAll(async () => {
    await Promise.all(made.sessions.map((id) => client.sessions.delete(id).catch(() => {})));
    await Promise.all(made.checkpoints.map((id) => client.checkpoints.delete(id).catch(() => {})));
  });
}
