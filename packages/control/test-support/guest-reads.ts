/** Answers of a guest that has one empty file and one process to everything that is read of it. */
import type { GuestRequest } from "@vivarium/contract/test-support/node";

export function answerReads(guest: GuestRequest): void {
  const web = { name: "web", argv: ["x"], keep_alive: false, state: "running", started_at_ms: 0 };
  if (guest.call === "GET files/read") guest.bytes(Buffer.alloc(0));
  else if (guest.call === "GET files/match") guest.json({ files: [], truncated: false, duration_us: 1 });
  else if (guest.call.endsWith("/logs")) guest.output().eof();
  else guest.json(guest.call === "GET processes" ? { processes: [web] } : web);
}
