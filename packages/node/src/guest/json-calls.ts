import { readAnswer, unanswered, withLimit } from "./answers.ts";
import type { GuestCall, JsonCall } from "./calls.ts";
import type { AgentClient } from "./client.ts";

/** Sends a request and checks its JSON answer. An answer that is too large or too late ends its stream. */
export async function callGuest(
  agent: AgentClient,
  call: GuestCall & JsonCall,
  body: Buffer | undefined,
  signal: AbortSignal,
): Promise<unknown> {
  const { method, path, limitMs } = call;
  const late = new AbortController();
  const ask = async () => {
    const given = { method, path, isWhole: body === undefined };
    const stream = await agent.open({ ...given, signal: AbortSignal.any([signal, late.signal]) });
    if (body !== undefined) stream.end(body);
    const answer = await agent.answerTo(stream, call);
    return await readAnswer(answer, call.schema, call.answerBytes);
  };
  return await withLimit(ask(), limitMs, () => {
    late.abort();
    return unanswered(call.isRepeatable, `the agent did not answer within ${limitMs} ms`);
  });
}
