/** The steps of a copy, from the trees on both sides. Touches nothing. */
import { CliError } from "../cli-error.ts";
import { type Entry, join, type Place, type ToFinish, type Tree } from "./entry.ts";

export interface Plan {
  directories: string[];
  /** Files to send. */
  files: { from: string; to: string; entry: Entry }[];
  /** Those of them that replace a link, by the target's paths. */
  overLinks: string[];
  /** Files that the target has already. */
  equal: number;
  /** Entries that get their links, modes and times at the end, by the target's paths. */
  finishing: ToFinish[];
  /** Entries that cannot be copied, by the source's paths. */
  leftOut: string[];
}

interface Side {
  place: Place;
  root: string;
  tree: Tree;
}

/** Files whose size and SHA-256 are equal on both sides are not sent again. */
export async function planCopy(source: Side, target: Side): Promise<Plan> {
  const plan: Plan = {
    directories: [],
    files: [],
    overLinks: [],
    equal: 0,
    finishing: [],
    leftOut: [],
  };
  const equal = await findEqual(source, target);
  for (const [path, entry] of source.tree) {
    const there = target.tree.get(path);
    const to = join(target.root, path);
    if (entry.kind === "other") {
      plan.leftOut.push(source.place.nameOf(join(source.root, path)));
      continue;
    }
    refuseClash(target.place.nameOf(to), entry, there);
    if (entry.kind === "directory") plan.directories.push(to);
    if (entry.kind === "file" && equal.has(path)) plan.equal++;
    else if (entry.kind === "file") {
      plan.files.push({ from: join(source.root, path), to, entry });
      if (there?.kind === "link") plan.overLinks.push(to);
    }
    if (!isFinished(entry, there, equal.has(path)))
      plan.finishing.push({ path: to, entry, isNew: !equal.has(path) });
  }
  return plan;
}

async function findEqual(source: Side, target: Side): Promise<Set<string>> {
  const alike = [...source.tree]
    .filter(([path, entry]) => {
      const there = target.tree.get(path);
      return entry.kind === "file" && there?.kind === "file" && there.bytes === entry.bytes;
    })
    .map(([path]) => path);
  const [here, there] = await Promise.all(
    [source, target].map(({ place, root }) => place.hash(alike.map((path) => join(root, path)))),
  );
  const equal = alike.filter((path) => {
    const hash = here?.get(join(source.root, path));
    return hash !== undefined && hash === there?.get(join(target.root, path));
  });
  return new Set(equal);
}

function refuseClash(name: string, entry: Entry, there: Entry | undefined): void {
  if (there === undefined || there.kind === entry.kind) return;
  if (entry.kind === "directory")
    throw new CliError(`${name} is to be a directory, and is none there; remove it first`);
  if (there.kind === "directory")
    throw new CliError(`${name} is a directory there, and none here; remove it first`);
}

/** A directory that was there keeps its rights, as with cp. */
function isFinished(entry: Entry, there: Entry | undefined, isEqual: boolean): boolean {
  if (there === undefined) return false;
  if (entry.kind === "directory") return true;
  if (entry.kind === "link") return there.kind === "link" && there.target === entry.target;
  return isEqual && there.mode === entry.mode && there.modifiedAt === entry.modifiedAt;
}
