/** `viv key create`: makes an API key. */
import { Option } from "commander";
import { parseCount, parseInstant } from "../../args/values.ts";
import { renderCreatedKey } from "../../print/key.ts";
import { findProject } from "../project/find-project.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface KeyOptions {
  project?: string;
  role?: "full" | "read";
  expires?: Date;
  sessions?: number;
}

export function keyCreateCommand(): Verb {
  return clientVerb("create", [
    "viv key create ci --project web --expires 90d >ci.key",
    "viv key create dashboard --role read",
  ])
    .summary("make an API key, shown this once")
    .description(
      `Make an API key, which can do no more than the key it is made with. It is shown this once; in a pipe alone.`,
    )
    .argument("<name>", "what it is for")
    .option("--project <project>", "name or id of the only project that it sees")
    .addOption(
      new Option("--role <role>", "read: only requests that change nothing").choices(["full", "read"]),
    )
    .option("--expires <time>", "when it stops working: 30d, or an instant with its zone", parseInstant)
    .option("--sessions <count>", "live sessions that it may have at once", parseCount)
    .option("--json", "print the key and its record as JSON")
    .does(createKey);
}

async function createKey(call: Call<KeyOptions>, name: string): Promise<void> {
  const client = await call.connect();
  const { project, role, expires, sessions } = call.options;
  const created = await client.keys.create({
    name,
    ...(project !== undefined && { project_id: (await findProject(client, project)).id }),
    ...(role !== undefined && { role }),
    ...(expires !== undefined && { expires_at: expires.toISOString() }),
    ...(sessions !== undefined && { concurrent_sessions: sessions }),
  });
  call.print(created, renderCreatedKey, ({ key }) => key);
  if (!call.options.json) call.terminal.note("viv: the key is not shown again");
}
