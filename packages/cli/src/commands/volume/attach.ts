/** `viv volume attach`: creates a session that has a volume. */
import { addSessionOptions, type SessionOptions, toSessionFields } from "../../args/session-options.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface AttachOptions extends SessionOptions {
  size?: string;
  template?: string;
}

export function volumeAttachCommand(): Verb {
  const command = clientVerb("attach", [
    "viv shell $(viv volume attach vol_4x7k2m9q0a1b2c3d4e5f6)",
    "viv volume attach --size medium --name training vol_4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("create a session with a volume")
    .description(
      `Create a session that has the volume at /volume, and return when it is live. Prints the session's id. The volume stays
with the session, also while it is paused, until the session is removed.`,
    )
    .argument("<volume>", "id of the volume")
    .option("--size <size>", "small, medium or large")
    .option("--template <name>", "what the session starts from, NAME or NAME@VERSION (default: base)");
  return addSessionOptions(command)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the session's record as JSON")
    .does(attachVolume);
}

async function attachVolume(call: Call<AttachOptions>, volume: string): Promise<void> {
  const { sessions } = await call.connect();
  const { size, template, timing } = call.options;
  const fields = await toSessionFields(call.options, call.config);
  const { session_id: id } = await sessions.create({ size, template, ...fields, volume_id: volume });
  call.printSession(await sessions.waitUntilLive(id, { timing }));
}
