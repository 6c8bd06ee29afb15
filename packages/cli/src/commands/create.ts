/** `viv create`: creates a session. */
import { addEgressOptions, type EgressOptions, toEgressFields } from "../args/egress-options.ts";
import { addSessionOptions, type SessionOptions, toSessionFields } from "../args/session-options.ts";
import { collectText } from "../args/values.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface CreateOptions extends SessionOptions, EgressOptions {
  size?: string;
  template?: string;
  fromCheckpoint?: string;
  volume?: string;
  sudo: boolean;
  wakeOnHttp: boolean;
  keep?: string[];
  wait?: boolean;
}

export function createCommand(): Verb {
  const command = clientVerb("create", [
    "viv create",
    "viv create --size medium --env GREETING=hello --wait",
    "viv create --secret OPENAI_API_KEY=@openai.key --secret NPM_TOKEN=@token.txt",
    "viv create --connect payments.json",
    "viv create --idle-timeout 10m --paused-ttl 7d",
    "viv create --allow pypi.org,files.pythonhosted.org --egress-cap 100MiB",
    "viv create --keep results --keep '*.log'",
    "viv create --from-checkpoint chk_4x7k2m9q0a1b2c3d4e5f6",
    "id=$(viv create) && viv exec $id -- uname -r",
  ])
    .summary("create a session")
    .description(
      "Create a session: a virtual machine that keeps its state until it is removed. Prints its id.",
    )
    .option("--size <size>", "small, medium or large")
    .option("--template <name>", "what it starts from, NAME or NAME@VERSION (default: base)")
    .option("--from-checkpoint <id>", "start from a checkpoint, which settles size and template")
    .option("--volume <id>", "a volume, which it has at /volume until it is removed");
  return addEgressOptions(addSessionOptions(command))
    .option("--keep <path>", "capture this path or glob when it is removed; repeatable", collectText)
    .option("--no-wake-on-http", "visitors of its previews do not wake it when it is paused")
    .option("--no-sudo", "take passwordless sudo away from the default user")
    .option("--wait", "return only when it is live")
    .option("--timing", "wait until it is live, then say how long each stage took")
    .option("--json", "print the record as JSON")
    .does(createSession);
}

async function createSession(call: Call<CreateOptions>): Promise<void> {
  const { sessions } = await call.connect();
  const { size, template, fromCheckpoint, volume, keep, sudo, wakeOnHttp, timing, wait } = call.options;
  const request = {
    size,
    template,
    from_checkpoint: fromCheckpoint,
    volume_id: volume,
    ...(await toSessionFields(call.options, call.config)),
    ...toEgressFields(call.options),
    artifacts: keep && { paths: keep },
    wake_on_http: wakeOnHttp ? undefined : false,
    no_sudo: sudo ? undefined : true,
  };
  const created = await sessions.create(request, { timing });
  // The API answers before the machine has started, so stage timings exist only once the session is live.
  const isAwaited = wait || timing;
  call.printSession(isAwaited ? await sessions.waitUntilLive(created.session_id, { timing }) : created);
}
