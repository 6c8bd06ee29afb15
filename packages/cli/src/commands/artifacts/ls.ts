/** `viv artifacts ls`: lists a session's artifacts, or the files of one artifact. */
import { isArtifactId, renderArtifact, renderArtifacts } from "../../print/artifact.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function artifactsLsCommand(): Verb {
  return clientVerb("ls", [
    "viv artifacts ls 4x7k2m9q0a1b2c3d4e5f6",
    "viv artifacts ls art_4x7k2m9q0a1b2c3d4e5f6",
  ])
    .argument("<session-or-artifact>", "a session, also one that has ended; or the id of an artifact")
    .summary("list a session's artifacts, or the files of one")
    .description("List a session's artifacts, newest first, or the files of one artifact.")
    .option("--json", 'print {"artifacts": [artifact, …]}, or the artifact')
    .does(listArtifacts);
}

async function listArtifacts(call: Call, reference: string): Promise<void> {
  if (isArtifactId(reference)) {
    const { artifacts } = await call.connect();
    return call.print(await artifacts.get(reference), renderArtifact);
  }
  const { session } = await call.find(reference, { orEnded: true });
  const list = await session.artifacts.list();
  call.print(list, () => renderArtifacts(list.artifacts, call.paint));
}
