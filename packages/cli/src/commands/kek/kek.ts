/** `viv kek`: the group of the verbs status and rotate, for the operator of the service. */
import { setTimeout as sleep } from "node:timers/promises";
import type { KekStatus } from "@vivarium/sdk";
import { Command } from "commander";
import { CliError } from "../../cli-error.ts";
import { connectAsOperator } from "../../connect.ts";
import { renderKeks } from "../../print/kek.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

const POLL_MS = 1_000;
/** The service works on what is left every ten seconds. Without progress for this long, something cannot be opened. */
const STUCK_MS = 45_000;

export function kekCommand(): Command {
  return new Command("kek")
    .summary("keys that seal secrets: status, rotate")
    .description(
      "Key-encryption keys, which seal the secrets and variables of all sessions. Needs the operator's key: run it as the user who runs the service, or set VIV_OPERATOR_KEY.",
    )
    .addCommand(statusCommand())
    .addCommand(rotateCommand());
}

function statusCommand(): Verb {
  return clientVerb("status", ["viv kek status"])
    .summary("list the key-encryption keys, and how much each still seals")
    .description(
      "List the key-encryption keys. One that seals nothing any more can be removed from its file.",
    )
    .option("--json", "print {current, keys, unsealed} as JSON")
    .does(async (call: Call) => {
      const client = await connectAsOperator(call.config);
      call.print(await client.operator.kekStatus(), renderKeks);
    });
}

function rotateCommand(): Verb {
  return clientVerb("rotate", ["sudo viv kek rotate"])
    .summary("seal with a new key from now on, and bring everything under it")
    .description(
      "Make a new key-encryption key, or take over the one that you have added, and wait until nothing is sealed with an older one. Sessions run on, and every secret stays readable.",
    )
    .option("--json", "print {current, keys, unsealed} as JSON")
    .does(async (call: Call) => {
      const client = await connectAsOperator(call.config);
      let status = await client.operator.rotateKek();
      call.terminal.note(`viv: ${status.current} seals from now on`);
      let progressAt = performance.now();
      for (let left = leftIn(status); left > 0; ) {
        call.terminal.note(`viv: ${left} of them are still sealed with an older key`);
        await sleep(POLL_MS);
        status = await client.operator.kekStatus();
        if (leftIn(status) < left) progressAt = performance.now();
        left = leftIn(status);
        if (left > 0 && performance.now() - progressAt > STUCK_MS) throw stuck(left);
      }
      call.print(status, renderKeks);
    });
}

function stuck(left: number): CliError {
  return new CliError(`${left} of them stay sealed with an older key`, {
    hint: "Keep that key. control.log names what cannot be opened.",
  });
}

/** Data keys under older keys. Those under a key that is not loaded stay, and are not waited for. */
function leftIn({ current, keys }: KekStatus): number {
  const old = keys.filter(({ id, is_loaded: isLoaded }) => id !== current && isLoaded);
  return old.reduce((sum, { data_keys: count }) => sum + count, 0);
}
