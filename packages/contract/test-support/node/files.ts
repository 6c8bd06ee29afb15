/** Files of a fake machine: a directory of this host serves as its /workspace. Names are UTF-8 here. */
import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, readdir, realpath, rename, rm, rmdir, stat, unlink } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { basename, dirname, isAbsolute, join, normalize } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { isInWorkspace, LIMITS } from "@vivarium/contract/api";
import type { FileList } from "@vivarium/contract/guest";
import type { NodeErrorCode, UploadWritten } from "@vivarium/contract/node";
import type { FakeMachine } from "./machine.ts";
import { Refusal } from "./refusal.ts";

const CODES: Readonly<Record<string, NodeErrorCode>> = {
  ENOENT: "no_such_file",
  ENOTDIR: "parent_not_a_directory",
  EISDIR: "is_a_directory",
  EEXIST: "file_exists",
  ENOTEMPTY: "directory_not_empty",
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  ENOSPC: "no_space",
};

/** Translates file errors of this host into refusals of the guest. */
export async function asGuest<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const code = CODES[(error as NodeJS.ErrnoException).code ?? ""];
    throw code ? new Refusal(code, (error as Error).message.replace(/, .*/s, "")) : error;
  }
}

export const workspaceOf = (machine: FakeMachine) => join(machine.dir, "workspace");

/** Translates a guest path to a path of this host. Links on the way are followed; a link at the end is not. */
export async function locate(machine: FakeMachine, path: string | null): Promise<string> {
  if (!path || path.includes("\0"))
    throw new Refusal("bad_path", "the path must be a text that is not empty");
  if (!isInWorkspace(path)) throw new Refusal("outside_workspace", "path must be under /workspace");
  const guestPath = normalize(isAbsolute(path) ? path : join("/workspace", path)).replace(/\/+$/, "");
  const root = workspaceOf(machine);
  const wanted = join(root, guestPath.slice("/workspace".length));
  if (wanted === root) return root;
  const parent = await realParent(dirname(wanted));
  if (!isBelow(parent, await realpath(root)))
    throw new Refusal("outside_workspace", "path must be under /workspace");
  return join(parent, basename(wanted));
}

/** Resolves the links of a directory, as far as it exists. */
async function realParent(dir: string): Promise<string> {
  try {
    return await realpath(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return join(await realParent(dirname(dir)), basename(dir));
  }
}

const isBelow = (path: string, root: string) => path === root || path.startsWith(`${root}/`);

/** Like `locate`, but follows a link at the end too. */
export async function followed(machine: FakeMachine, path: string | null): Promise<string> {
  const real = await realpath(await locate(machine, path));
  if (isBelow(real, await realpath(workspaceOf(machine)))) return real;
  throw new Refusal("outside_workspace", "path must be under /workspace");
}

export async function readFile(machine: FakeMachine, query: URLSearchParams, response: ServerResponse) {
  const file = await followed(machine, query.get("path"));
  if (
    query.get("plain") === "true" &&
    file !== join(await realpath(workspaceOf(machine)), query.get("path") ?? "")
  )
    throw new Refusal("bad_path", "the path has a link");
  const info = await stat(file);
  if (info.isDirectory()) throw new Refusal("is_a_directory", "is a directory");
  if (!info.isFile()) throw new Refusal("not_a_regular_file", "not a regular file");
  const most = query.get("max_bytes");
  if (most !== null && info.size > Number(most)) throw new Refusal("too_large", `${info.size} bytes`);
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": info.size });
  if (info.size === 0) return void response.end();
  await pipeline(createReadStream(file, { end: info.size - 1 }), response).catch(() => response.destroy());
}

export async function listFiles(machine: FakeMachine, query: URLSearchParams): Promise<FileList> {
  const dir = await followed(machine, query.get("path"));
  if (!(await stat(dir)).isDirectory()) throw new Refusal("not_a_directory", "not a directory");
  const names = await Promise.all(
    (await readdir(dir)).map(async (name) => `${name}${await slashOf(join(dir, name))}`),
  );
  const entries = names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return { entries: entries.slice(0, LIMITS.listEntries), truncated: entries.length > LIMITS.listEntries };
}

const slashOf = async (path: string) => ((await stat(path).catch(() => undefined))?.isDirectory() ? "/" : "");

export async function writeFile(
  machine: FakeMachine,
  query: URLSearchParams,
  body: IncomingMessage,
): Promise<UploadWritten> {
  const target = await locate(machine, query.get("path"));
  if ((await stat(target).catch(() => undefined))?.isDirectory())
    throw new Refusal("is_a_directory", "is a directory");
  await mkdir(dirname(target), { recursive: true });
  const part = join(dirname(target), `.${randomUUID()}.part`);
  const hash = createHash("sha256");
  let bytes = 0;
  const meter = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  try {
    await pipeline(body, meter, createWriteStream(part));
    await rename(part, target);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
  return { bytes, sha256: hash.digest("hex"), duration_us: 1 };
}

export async function deleteFile(machine: FakeMachine, query: URLSearchParams): Promise<object> {
  const target = await locate(machine, query.get("path"));
  assertNotRoot(machine, target);
  const info = await lstat(target);
  if (!info.isDirectory()) await unlink(target);
  else if (query.get("recursive") === "true") await rm(target, { recursive: true });
  else await rmdir(target);
  return {};
}

export async function makeDirectory(machine: FakeMachine, body: { path: string }): Promise<object> {
  await mkdir(await locate(machine, body.path), { recursive: true });
  return {};
}

export async function renameFile(machine: FakeMachine, body: { path: string; dest_path: string }) {
  const [from, to] = [await locate(machine, body.path), await locate(machine, body.dest_path)];
  for (const path of [from, to]) assertNotRoot(machine, path);
  await lstat(from);
  await mkdir(dirname(to), { recursive: true });
  await rename(from, to);
  return {};
}

function assertNotRoot(machine: FakeMachine, path: string): void {
  if (path === workspaceOf(machine))
    throw new Refusal("workspace_root", "the workspace root cannot be removed or renamed");
}
