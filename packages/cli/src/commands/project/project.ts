/** `viv project`: the group of the verbs create, ls and rm. */
import { Command } from "commander";
import { collectPair } from "../../args/values.ts";
import { renderProjects } from "../../print/key.ts";
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";
import { findProject } from "./find-project.ts";

export function projectCommand(): Command {
  return new Command("project")
    .summary("parts of the organisation: create, ls, rm")
    .description(
      "Projects: parts of the organisation that API keys can be bound to (viv key create --project).",
    )
    .addCommand(createCommand())
    .addCommand(lsCommand())
    .addCommand(rmCommand());
}

function createCommand(): Verb {
  return clientVerb("create", ["viv project create web --label team=a"])
    .summary("make a project")
    .description("Make a project. Prints its id.")
    .argument("<name>", "name of the project")
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--json", "print the project as JSON")
    .does(async (call: Call<{ label?: Record<string, string> }>, name: string) => {
      const { label: labels } = call.options;
      const project = await (await call.connect()).projects.create({ name, ...(labels && { labels }) });
      call.print(project, ({ id }) => id);
    });
}

function lsCommand(): Verb {
  return clientVerb("ls", ["viv project ls"])
    .summary("list projects")
    .description("List the projects: the default one, which sessions belong to by default, then the others.")
    .option("--json", 'print {"projects": [project, …]}')
    .does(async (call: Call) => {
      const list = await (await call.connect()).projects.list();
      call.print(list, ({ projects }) => renderProjects(projects, new Date()));
    });
}

function rmCommand(): Verb {
  return clientVerb("rm", ["viv project rm web"])
    .summary("delete projects, and revoke their keys")
    .description("Delete projects without unfinished sessions. The keys that are bound to them are revoked.")
    .argument("<project...>", "names or ids of projects")
    .option("--json", 'print {"results": [{project, ok, error?, code?}, …]}')
    .does(async (call: Call, references: string[]) => {
      const client = await call.connect();
      return doEach(call, { ids: references, key: "project" }, async (reference) =>
        client.projects.delete((await findProject(client, reference)).id),
      );
    });
}
