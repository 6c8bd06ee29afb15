/**
 * Has a builder unpack its image, and checks the frames of its agent. The layers' content may have taken the builder over,
 * so its progress and totals are for showing, and its failure is one of three words.
 */
import {
  FRAME,
  type Frame,
  FrameDecoder,
  ListReader,
  UNPACKING,
  UnpackFailure,
  type UnpackProgress,
  type UnpackTotals,
} from "@vivarium/contract/guest";
import { assertAccepted } from "./answers.ts";
import type { AgentClient } from "./client.ts";

/** The image cannot be unpacked. The message has text of the guest, in printable characters. */
export class UnpackError extends Error {
  readonly code: UnpackFailure["code"];
  constructor(code: UnpackFailure["code"], message: string) {
    super(message);
    this.code = code;
  }
}

/** Resolves once the target has everything. Rejects with UnpackError, or with another error if the builder broke off. */
export async function unpackInGuest(
  agent: Pick<AgentClient, "open" | "answerTo">,
  { signal, onProgress }: { signal: AbortSignal; onProgress: (progress: UnpackProgress) => void },
): Promise<UnpackTotals> {
  const stream = await agent.open({
    method: "POST",
    path: "/v1/unpack",
    isWhole: true,
    isOwn: true,
    signal,
  });
  await assertAccepted(await agent.answerTo(stream, { isRepeatable: false }));
  const decoder = new FrameDecoder();
  const reader = new ListReader(UNPACKING);
  for await (const chunk of stream) {
    for (const frame of decoder.push(chunk as Buffer)) {
      if (frame.type === FRAME.error) throw failureIn(frame);
      for (const progress of reader.read(frame)) onProgress(progress);
      if (reader.end) return reader.end;
    }
  }
  throw new Error("the builder ended its answer without a result");
}

function failureIn({ payload }: Frame): UnpackError {
  const { code, message } = UnpackFailure.parse(JSON.parse(payload.toString("utf8")));
  return new UnpackError(code, message.replace(/[^\x20-\x7e]/g, "?"));
}
