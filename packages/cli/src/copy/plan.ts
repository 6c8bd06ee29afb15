/** Plans the steps of a copy by comparing the trees of both sides; changes nothing. */
import { CliError } from "../cli-error.ts";
import { type Entry, join, type Place, type ToFinish, type Tree } from "./entry.ts";

export interface Plan {
  directories: string[];
  /** Files whose content is sent. */
  files: { from: string; to: string; entry: Entry }[];
  /** Target paths of those files that replace a link. */
  overLinks: string[];
  /** Number of files that are equal on both sides. */
  equal: number;
  /** Links to make and entries to give their mode and time at the end, by target path. */
  finishing: ToFinish[];
  /** Source paths of entries that cannot be copied, such as sockets. */
  leftOut: string[];
}

interface Side {
  place: Place;
  root: string;
  tree: Tree;
}

/** Compares both sides; files with equal size and SHA-256 are not sent again. */
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

/** Whether the target's entry needs no more work; an existing directory keeps its mode, as with cp. */
function isFinished(entry: Entry, there: Entry | undefined, isEqual: boolean): boolean {
  if (there === undefined) return false;
  if (entry.kind === "directory") return true;
  if (entry.kind === "link") return there.kind === "link" && there.target === entry.target;
  return isEqual && there.mode === entry.mode && there.modifiedAt === entry.modifiedAt;
}
