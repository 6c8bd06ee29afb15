/** Waits until an import is over, and shows a human how far it is. */
import { sleep } from "@vivarium/kit/clock";
import type { Client, Template } from "@vivarium/sdk";
import { CliError } from "../../cli-error.ts";
import { renderBuild } from "../../print/template.ts";
import type { Call } from "../verb.ts";

/** Interval at which the import is looked at. */
const LOOK_MS = 1_000;
const CLEAR_LINE = "\r\u001b[K";

/** On a terminal it shows that in one line. Rejects if the import failed, and when the signal aborts. */
export async function untilOver(
  call: Call,
  client: Client,
  queued: Template,
  signal?: AbortSignal,
): Promise<Template> {
  const { terminal } = call;
  const show = (text: string) =>
    terminal.isInteractive && !call.options.json
      ? terminal.write("stdout", Buffer.from(CLEAR_LINE + text.slice(0, terminal.size().columns - 1)))
      : Promise.resolve();
  let template = queued;
  try {
    while (template.status === "queued" || template.status === "building") {
      await show(stateOf(template));
      await sleep(LOOK_MS, signal);
      signal?.throwIfAborted();
      template = await client.templates.get(queued.name, { signal });
    }
  } finally {
    await show("");
  }
  if (template.status === "ready") return template;
  throw new CliError(
    `the import of ${queued.name} failed: ${template.build_error ?? "it does not say why"}`,
    {
      hint: hintFor(template),
    },
  );
}

function stateOf({ status, queue_position: position, progress }: Template): string {
  if (status === "queued") return `waiting${position === undefined ? "" : `, place ${position}`}`;
  return progress ? renderBuild(progress) : "beginning";
}

function hintFor({ name, build_error: error = "" }: Template): string {
  if (error.startsWith("registry_auth:"))
    return "Give the service a credential: viv registry login HOST --username NAME";
  return `What was done until then: viv template log ${name}`;
}
