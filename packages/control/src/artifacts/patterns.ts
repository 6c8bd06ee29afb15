/** Turns the paths of a capture into globs below /workspace. Pure. */

const WILDCARD = /[*?[\\]/;

/**
 * Two globs for a path without wildcards, which may name a file or a directory. The path has been checked to stay below
 * /workspace.
 */
export function globsOf(path: string): string[] {
  const below = belowWorkspace(path);
  if (below === "") return ["**"];
  return WILDCARD.test(below) ? [below] : [below, `${below}/**`];
}

function belowWorkspace(path: string): string {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `/workspace/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts.slice(1).join("/");
}
