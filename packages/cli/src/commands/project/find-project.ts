import type { Client, Project } from "@vivarium/sdk";
import { CliError } from "../../cli-error.ts";

/** The project with this name or id. */
export async function findProject(client: Client, reference: string): Promise<Project> {
  const { projects } = await client.projects.list();
  const found = projects.find(({ id, name }) => name === reference || id === reference);
  if (found) return found;
  throw new CliError(`no project is called ${JSON.stringify(reference)}`, {
    hint: projects.length > 0 ? `There are: ${projects.map(({ name }) => name).join(", ")}.` : undefined,
  });
}
