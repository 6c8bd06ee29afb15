import { link, mkdir, open, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { type PackOptions, pack, readFirst, unpack } from "./archive.ts";
import { sumsBelow } from "./sums.ts";

inOwnDirectories();

const NEVER = new AbortController().signal;
const OPTIONS = { signal: NEVER, verify: () => Promise.reject(new Error("nothing changes here")) };

async function makeTree(): Promise<string> {
  const tree = path.join(dir, "tree");
  await mkdir(path.join(tree, "s/pau_1"), { recursive: true });
  await writeFile(path.join(tree, "manifest.json"), "first");
  await writeFile(path.join(tree, "s/pau_1/mem.sums"), Buffer.from([0, 255, 10]), { mode: 0o444 });
  await using sparse = await open(path.join(tree, "s/pau_1/mem"), "wx", 0o444);
  await sparse.write("end", 64 * 1024 * 1024);
  await symlink("mem", path.join(tree, "s/pau_1/other"));
  return tree;
}

test("what is packed is unpacked with its content, links, holes, modes and times, and only its owner reads it", async () => {
  const tree = await makeTree();
  const file = path.join(dir, "a.tar.zst");
  await pack(
    file,
    [
      { dir: tree, names: ["manifest.json"] },
      { dir: tree, names: ["s"] },
    ],
    OPTIONS,
  );
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect((await stat(file)).size).toBeLessThan(100_000);
  expect(await readFirst(file, "manifest.json")).toBe("first");
  const copy = path.join(dir, "copy");
  await mkdir(copy);
  await unpack(file, copy, NEVER);
  expect(await sumsBelow(copy, ["manifest.json", "s"])).toEqual(
    await sumsBelow(tree, ["manifest.json", "s"]),
  );
  const factsOf = async (of: string) => {
    const { mode, mtimeNs, blocks } = await stat(path.join(of, "s/pau_1/mem"), { bigint: true });
    return { mode, mtimeNs, isSparse: blocks < 1000n };
  };
  expect(await factsOf(copy)).toEqual(await factsOf(tree));
});

test("a file that gets and loses names while it is packed is packed if its content is as it was", async () => {
  const tree = path.join(dir, "tree");
  await mkdir(tree);
  await writeFile(path.join(tree, "large"), Buffer.alloc(64 * 1024 * 1024, "content"));
  const file = path.join(dir, "a.tar.zst");
  let isOver = false;
  const verified: string[][] = [];
  const packing = (verify: PackOptions["verify"]) =>
    pack(file, [{ dir: tree, names: ["large"] }], { signal: NEVER, verify }).finally(() => {
      isOver = true;
    });
  const linkAndUnlink = async () => {
    while (!isOver) {
      await link(path.join(tree, "large"), path.join(dir, "other"));
      await rm(path.join(dir, "other"));
    }
  };
  const remember = (names: string[]) => Promise.resolve(void verified.push(names));
  await Promise.all([packing(remember), linkAndUnlink()]);
  expect(verified).toEqual([["large"]]);
  expect((await stat(file)).mode & 0o777).toBe(0o600);

  isOver = false;
  await rm(file);
  const refuse = () => Promise.reject(new Error("its content is another"));
  const outcome = await Promise.allSettled([packing(refuse), linkAndUnlink()]);
  expect(outcome[0]).toMatchObject({ reason: { message: "its content is another" } });
  expect((await readdir(dir)).filter((name) => name.startsWith("a.tar"))).toEqual([]);
});

test("a failure leaves no file, and those of others as they were", async () => {
  const file = path.join(dir, "a.tar.zst");
  const names = ["a.tar.zst", "a.tar.zst.part"];
  for (const name of names) await writeFile(path.join(dir, name), "earlier");
  await expect(pack(file, [{ dir, names: ["none"] }], OPTIONS)).rejects.toThrow(`cannot write ${file}`);
  expect((await readdir(dir)).filter((name) => name.startsWith("a.tar"))).toEqual(names);
  expect((await stat(file)).size).toBe(7);
});

test.each([
  ["an absolute link", (outside: string) => outside],
  ["a relative link", () => "../../outside"],
])("no member is unpacked through %s that an earlier one made", async (_what, targetOf) => {
  const outside = path.join(dir, "outside");
  for (const name of [outside, "first/s", "second/s/x", "copy"])
    await mkdir(path.resolve(dir, name), { recursive: true });
  await symlink(targetOf(outside), path.join(dir, "first/s/x"));
  await writeFile(path.join(dir, "second/s/x/evil"), "evil");
  const file = path.join(dir, "a.tar.zst");
  const members = [
    { dir: path.join(dir, "first"), names: ["s/x"] },
    { dir: path.join(dir, "second"), names: ["s/x/evil"] },
  ];
  await pack(file, members, OPTIONS);
  await expect(unpack(file, path.join(dir, "copy"), NEVER)).rejects.toThrow("Not a directory");
  expect(await readdir(outside)).toEqual([]);
});

test.each(["../outside/evil", "s/../../outside/evil"])("a member %s is refused", async (name) => {
  for (const made of ["outside", "copy", "tree/s"]) await mkdir(path.join(dir, made), { recursive: true });
  await writeFile(path.join(dir, "evil"), "evil");
  const file = path.join(dir, "a.tar");
  const renamed = `--transform=s,.*,${name},`;
  await runHostCommand("tar", ["-Pcf", file, renamed, `--directory=${dir}`, "evil"]);
  await runHostCommand("zstd", ["-q", file]);
  await expect(unpack(`${file}.zst`, path.join(dir, "copy"), NEVER)).rejects.toThrow("contains '..'");
  expect(await readdir(path.join(dir, "outside"))).toEqual([]);
});

test("a file that is no archive, or is cut off, is refused", async () => {
  const file = path.join(dir, "a.tar.zst");
  await writeFile(file, "text");
  await expect(readFirst(file, "manifest.json")).rejects.toThrow(`cannot read ${file}`);
  const tree = await makeTree();
  await writeFile(path.join(tree, "s/noise"), crypto.getRandomValues(new Uint8Array(60_000)));
  await pack(file, [{ dir: tree, names: ["manifest.json", "s"] }], OPTIONS);
  await using handle = await open(file, "r+");
  await handle.truncate(30_000);
  await mkdir(path.join(dir, "copy"));
  await expect(unpack(file, path.join(dir, "copy"), NEVER)).rejects.toThrow(`cannot unpack ${file}`);
});
