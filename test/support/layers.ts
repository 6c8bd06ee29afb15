/** Layers of container images, made with GNU tar from a folder each, and a look into the disk that they become. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { LayerFile } from "../../packages/node/src/builds/layer-disk.ts";

export interface LayerSpec {
  name: string;
  compression?: "gzip" | "zstd";
  /** Fills the folder that becomes the layer. */
  fill: (dir: string) => void;
  /** Further options of tar. */
  options?: string[];
}

/** Makes a layer below `dir`, as a registry would have sent it. */
export function makeLayer(dir: string, { name, compression, fill, options = [] }: LayerSpec): LayerFile {
  const tree = join(dir, `${name}.tree`);
  mkdirSync(tree);
  fill(tree);
  const tar = join(dir, `${name}.tar`);
  const usual = ["--sort=name", "--numeric-owner", "-C", tree];
  execFileSync("tar", ["-c", "-f", tar, ...usual, ...options, "."]);
  return packLayer(dir, name, readFileSync(tar), compression);
}

export function packLayer(dir: string, name: string, tar: Buffer, compression?: "gzip" | "zstd"): LayerFile {
  const path = join(dir, name);
  writeFileSync(path, tar);
  if (compression === "gzip") writeFileSync(path, gzipSync(tar));
  if (compression === "zstd") {
    execFileSync("zstd", ["-q", "-f", path, "-o", `${path}.zst`]);
    writeFileSync(path, readFileSync(`${path}.zst`));
  }
  const stored = readFileSync(path);
  return {
    path,
    digest: sha256(stored),
    diffId: sha256(tar),
    compression: compression ?? "none",
    sizeBytes: stored.length,
  };
}

export const sha256 = (bytes: Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Reads an ext4 disk without mounting it. */
export class DiskReader {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  /** Throws unless the file system is consistent. */
  check(): void {
    execFileSync("e2fsck", ["-f", "-n", this.#file], { stdio: "pipe" });
  }

  #ask(command: string): string {
    const quiet: ("ignore" | "pipe")[] = ["ignore", "pipe", "pipe"];
    const options = { stdio: quiet, maxBuffer: 2 ** 26 };
    return execFileSync("debugfs", ["-R", command, this.#file], options).toString();
  }

  text(path: string): string {
    return this.#ask(`cat "${path}"`);
  }

  /** Names in a directory, sorted. */
  names(path: string): string[] {
    const rows = this.#ask(`ls -p "${path}"`).split("\n").filter(Boolean);
    const names = rows.map((row) => row.split("/")[5] ?? "");
    return names.filter((name) => name !== "." && name !== "..").sort();
  }

  /** Undefined if there is nothing of this name. */
  look(path: string) {
    const said = this.#ask(`stat "${path}"`);
    const field = (pattern: RegExp) => pattern.exec(said)?.[1];
    const inode = field(/^Inode: (\d+)/m);
    if (inode === undefined) return undefined;
    return {
      inode: Number(inode),
      type: field(/Type: ([a-z ]+?) +Mode/),
      mode: Number.parseInt(field(/Mode: +(\d+)/) ?? "", 8),
      user: Number(field(/User: +(\d+)/)),
      group: Number(field(/Group: +(\d+)/)),
      size: Number(field(/ Size: (\d+)/)),
      links: Number(field(/Links: (\d+)/)),
      blocks: Number(field(/Blockcount: (\d+)/)),
      target: field(/Fast link dest: "(.*)"/),
      attributes: [...said.matchAll(/^ {2}([a-z.]+) \(/gm)].map(([, name]) => name),
      mtime: field(/ mtime: 0x([0-9a-f]+)/),
    };
  }
}
