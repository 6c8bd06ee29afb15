/** Opens the files of a layout in a machine, by its agent. */
import type { OpenLayoutFile } from "@vivarium/oci/image-layout";
import { guestCall } from "../guest/calls.ts";
import { readContent } from "../guest/streams.ts";
import { NodeError } from "../node-error.ts";
import type { Build } from "./build.ts";
import type { BuildDeps } from "./deps.ts";

/** Refusals of a path that leads to no regular file. With `plain`, a link anywhere in it counts as none. */
const NOT_A_FILE: ReadonlySet<string> = new Set([
  "no_such_file",
  "parent_not_a_directory",
  "not_a_directory",
  "is_a_directory",
  "not_a_regular_file",
  "permission_denied",
  "outside_workspace",
  "bad_path",
]);

export function openerOf(
  { agentOf }: Pick<BuildDeps, "agentOf">,
  { machineId }: Pick<Build, "machineId">,
  layout: string,
): OpenLayoutFile {
  return async (path, signal) => {
    if (machineId === undefined) throw new NodeError("invalid", "a build of a layout needs its machine");
    const query = new URLSearchParams({ path: `${layout}/${path}`, plain: "true" });
    const call = guestCall("GET", `/v1/files/read?${query}`);
    try {
      const { bytes, stream } = await readContent(agentOf(machineId), call, signal);
      // It may break before anybody reads it, who then gets the error.
      stream.on("error", () => {});
      return { sizeBytes: bytes, content: unbroken(stream), close: () => void stream.destroy() };
    } catch (error) {
      if (error instanceof NodeError && NOT_A_FILE.has(error.code)) return undefined;
      throw error;
    }
  };
}

/** A machine that is paused in the middle breaks off as well as a file that becomes shorter: both may pass. */
async function* unbroken(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  try {
    yield* content;
  } catch (cause) {
    throw new NodeError("agent_unavailable", "a file of the layout broke off while it was read", { cause });
  }
}
