/** `viv template build`: makes a template of a Dockerfile. */
import { type Client, type Template, VivariumError } from "@vivarium/sdk";
import { addEgressOptions, type EgressOptions, toEgressFields } from "../../args/egress-options.ts";
import { collectPair, parseDuration } from "../../args/values.ts";
import { noProgress, progressLine } from "../../copy/progress.ts";
import { type BuildArguments, buildImage, IMAGE_BUILDER, LAYOUT } from "../../images/build.ts";
import { type Context, findContext, sendContext } from "../../images/context.ts";
import { withHint } from "../../print/explain-error.ts";
import { pinned, renderTemplate } from "../../print/template.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";
import { untilOver } from "./until-over.ts";

interface BuildOptions extends EgressOptions, Omit<BuildArguments, "timeout"> {
  name: string;
  description?: string;
  file?: string;
  size?: string;
  timeout?: number;
}

/** The longest that the API allows. */
const TIMEOUT_MS = 60 * 60_000;
/** Should this process be killed, the machine pauses after the first, and is gone after the second. */
const IDLE_MS = 10 * 60_000;
const PAUSED_MS = 6 * 60 * 60_000;

export function templateBuildCommand(): Verb {
  const command = clientVerb("build", [
    "viv template build --name app && viv create --template app",
    "viv template build app/ --name app --file app/Dockerfile.test --build-arg VERSION=2 --target test",
    "viv template build --name app --allow deb.debian.org,docker.io,*.docker.com",
  ])
    .summary("make a template of a Dockerfile")
    .description(
      `Build an image from a Dockerfile in a virtual machine of its own, and make a template of it. What the build prints
is passed on as it comes. Under a name that exists already this adds a version. Prints NAME@VERSION.
The machine is a session of yours, of the template ${IMAGE_BUILDER}, with the network that the options say, and ends afterwards.
The whole directory is copied there; .dockerignore counts for what the build sees. FROM pulls public images only.`,
    )
    .argument("[dir]", "directory that the Dockerfile copies from", ".")
    .requiredOption("--name <name>", "name of the template: a-z, 0-9, dots and hyphens")
    .option("--description <text>", "what it is for")
    .option("--file <path>", "the Dockerfile (default: DIR/Containerfile or DIR/Dockerfile)")
    .option("--build-arg <NAME=value>", "value of an ARG; repeatable", collectPair)
    .option("--target <stage>", "the stage to build (default: the last one)")
    .option("--size <size>", "of the machine that builds: small, medium or large");
  return addEgressOptions(command)
    .option("--timeout <time>", "stop the build after this long, at most 1h (the default)", parseDuration)
    .option("--json", "print the template as JSON")
    .does(buildTemplate);
}

async function buildTemplate(call: Call<BuildOptions>, directory: string): Promise<void> {
  const context = await findContext(directory, call.options.file);
  const client = await call.connect();
  const template = await withInterrupt((signal) => build(call, { client, context, signal }));
  call.print(template, renderTemplate, pinned);
}

interface Work {
  client: Client;
  context: Context;
  signal: AbortSignal;
}

async function build(call: Call<BuildOptions>, { client, context, signal }: Work): Promise<Template> {
  const { terminal, options } = call;
  const { name, description, timeout = TIMEOUT_MS } = options;
  const id = await createBuilder(client, options);
  try {
    signal.throwIfAborted();
    const session = client.session(id);
    const isShown = terminal.isInteractive && call.config.canDraw && !options.json;
    const progress = isShown
      ? progressLine({ terminal, now: () => performance.now() }, context.directory)
      : noProgress;
    const sent = await sendContext(session, context, { progress, signal }).finally(() => progress.end());
    await buildImage({ terminal, signal }, session, { context: sent, options: { ...options, timeout } });
    const from_layout = { session_id: id, path: LAYOUT };
    const queued = await client.templates.import({ name, description, from_layout }, { signal });
    return await untilOver(call, client, queued, signal);
  } finally {
    await client.sessions.delete(id).catch((error: Error) => {
      terminal.note(`viv: the machine of the build could not be ended: ${error.message}\n     viv rm ${id}`);
    });
  }
}

/** Without the signal: a request that is broken off might leave a session that nobody ends. */
async function createBuilder(client: Client, options: BuildOptions): Promise<string> {
  const request = {
    ...{ template: IMAGE_BUILDER, size: options.size, labels: { "template-build": options.name } },
    ...{ idle_timeout_ms: IDLE_MS, paused_ttl_ms: PAUSED_MS },
    ...toEgressFields(options),
  };
  try {
    return (await client.sessions.create(request)).session_id;
  } catch (error) {
    if (!(error instanceof VivariumError) || error.code !== "not_found") throw error;
    throw withHint(error, "On the service's host, once: ./setup --image-builder");
  }
}
