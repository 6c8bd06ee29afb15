/** Files of a guest. */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { LISTS } from "@vivarium/contract/guest";
import { UploadWritten } from "@vivarium/contract/node";
import { readList } from "@vivarium/contract/test-support/lists";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { type OneMachine, refusal } from "../contracted-node.ts";
import { guestCalls } from "./calls.ts";

const MIB = 1024 * 1024;

export function guestFiles(one: OneMachine): void {
  const { ask, begin, list, read, run, write } = guestCalls(one);

  describe("a file of the guest", () => {
    test("is written whole, with its parents, and read back byte for byte", async () => {
      const content = randomBytes(3 * MIB);
      const written = UploadWritten.parse((await write("up/and/down.bin", content)).body);
      const sha256 = createHash("sha256").update(content).digest("hex");
      expect(written).toMatchObject({ bytes: content.length, sha256 });
      const back = await read("/workspace/up/and/down.bin");
      expect(back.headers["content-length"]).toBe(String(content.length));
      expect(back.bytes.equals(content)).toBe(true);
      expect(await run("sha256sum < up/and/down.bin")).toBe(`${sha256}  -\n`);
    });

    test("may be empty", async () => {
      expect(await write("empty", "")).toMatchObject({ status: 200, body: { bytes: 0 } });
      expect(await read("empty")).toMatchObject({ status: 200, bytes: Buffer.alloc(0) });
    });

    test("keeps its content if an upload breaks off, and nothing is left beside it", async () => {
      await write("broken/file", "before");
      const call = begin("PUT", "/files/write?path=broken/file");
      if (!call.write(Buffer.alloc(8 * MIB))) await once(call, "drain");
      call.destroy();
      await eventually(async () => expect((await list("broken")).entries).toEqual(["file"]));
      expect((await read("broken/file")).bytes.toString()).toBe("before");
    });

    test("is refused if it is larger than the caller's limit", async () => {
      await write("large", "12345");
      expect(await read("large", "&max_bytes=4")).toMatchObject(refusal(400, "too_large"));
      expect(await read("large", "&max_bytes=5")).toMatchObject({ status: 200 });
    });

    test("is listed, renamed and deleted", async () => {
      await ask("POST", "/files/mkdir", { path: "place/deep" });
      await write("place/b", "b");
      await write("place/.a", "a");
      expect(await list("place")).toEqual({ entries: [".a", "b", "deep/"], truncated: false });
      const moved = await ask("POST", "/files/rename", { path: "place/b", dest_path: "place/new/c" });
      expect(moved).toMatchObject({ status: 200, body: {} });
      expect(await list("place/new")).toMatchObject({ entries: ["c"] });
      const full = await ask("DELETE", "/files?path=place");
      expect(full).toMatchObject(refusal(409, "directory_not_empty"));
      expect(await ask("DELETE", "/files?path=place/deep")).toMatchObject({ status: 200 });
      expect(await ask("DELETE", "/files?path=place&recursive=true")).toMatchObject({ status: 200 });
      expect(await ask("GET", "/files/list?path=place")).toMatchObject(refusal(404, "no_such_file"));
    });

    test("is matched by its path, with its size, and never through a link", async () => {
      await write("match/a.txt", "12345");
      await write("match/deep/b.txt", "");
      await run("ln -s a.txt match/link && ln -s deep match/to-deep");
      const matched = async (pattern: string, most = 10) =>
        readList(
          LISTS.files,
          (await ask("GET", `/files/match?pattern=${pattern}&max_results=${most}`)).bytes,
        );
      const files = [
        { path: "match/a.txt", bytes: 5 },
        { path: "match/deep/b.txt", bytes: 0 },
      ];
      expect(await matched("match/**")).toMatchObject({ items: files, end: { truncated: false } });
      expect((await matched("match/a.txt")).items).toEqual(files.slice(0, 1));
      expect((await matched("match/link")).items).toEqual([]);
      expect((await matched("match/to-deep/*")).items).toEqual([]);
      expect(await matched("match/**", 1)).toMatchObject({
        items: files.slice(0, 1),
        end: { truncated: true },
      });
      expect(await read("match/a.txt", "&plain=true")).toMatchObject({ status: 200 });
      for (const path of ["match/link", "match/to-deep/b.txt"])
        expect((await read(path, "&plain=true")).status, path).toBe(400);
    });

    test("is found by its name, and by its content", async () => {
      await write("search/one.ts", "first\nneedle here\nlast\n");
      await write("search/sub/two.ts", "NEEDLE\n");
      await write("search/skip/three.ts", "needle\n");
      await write("search/four.md", "needle\n");
      const found = await ask("GET", "/files/find?path=search&pattern=**/*.ts&max_results=10");
      expect(readList(LISTS.paths, found.bytes)).toMatchObject({
        items: ["one.ts", "skip/three.ts", "sub/two.ts"].map((name) => `/workspace/search/${name}`),
        end: { truncated: false },
      });
      const query =
        "path=search&pattern=need.e&max_results=10&file_pattern=*.ts&exclude_dirs=skip&context_lines=1";
      const lines = readList(LISTS.matches, (await ask("GET", `/files/grep?${query}`)).bytes);
      expect(lines.end).toMatchObject({ files_searched: 2, truncated: false });
      const [one, two, ...rest] = lines.items;
      expect(one).toEqual({
        path: "/workspace/search/one.ts",
        line_number: 2,
        line: "needle here",
        before: ["first"],
        after: ["last"],
      });
      expect(two).toMatchObject({ path: "/workspace/search/sub/two.ts", line_number: 1, line: "NEEDLE" });
      expect(rest).toEqual([]);
    });

    test("is searched only with patterns that need no backtracking", async () => {
      const grep = await ask(
        "GET",
        `/files/grep?path=.&max_results=1&pattern=${encodeURIComponent("(a)\\1")}`,
      );
      expect(grep).toMatchObject(refusal(400, "bad_pattern"));
    });

    test("is refused with an error of its own for each kind of problem", async () => {
      await write("kinds/file", "x");
      await run("mkfifo kinds/pipe; ln -s /etc kinds/out");
      const cases = [
        [await read("nowhere"), 404, "no_such_file"],
        [await read("kinds/file/below"), 404, "parent_not_a_directory"],
        [await read("kinds"), 400, "is_a_directory"],
        [await read("kinds/pipe"), 400, "not_a_regular_file"],
        [await ask("GET", "/files/list?path=kinds/file"), 400, "not_a_directory"],
        [await read("../etc/passwd"), 400, "outside_workspace"],
        [await read("/etc/passwd"), 400, "outside_workspace"],
        [await read("kinds/out/passwd"), 400, "outside_workspace"],
        [await write("kinds/out/new", "x"), 400, "outside_workspace"],
        [await write("kinds", "x"), 400, "is_a_directory"],
        [await ask("POST", "/files/mkdir", { path: "kinds/file" }), 409, "file_exists"],
        [await ask("DELETE", "/files?path=/workspace&recursive=true"), 400, "workspace_root"],
      ] as const;
      for (const [answer, status, code] of cases) expect(answer).toMatchObject(refusal(status, code));
    });

    test("that is a link is removed as a link", async () => {
      await run("mkdir -p links && ln -s /etc/hostname links/link");
      expect(await ask("DELETE", "/files?path=links/link")).toMatchObject({ status: 200 });
      expect(await run("ls links; test -e /etc/hostname && echo kept")).toBe("kept\n");
    });

    test("has no other calls", async () => {
      for (const [method, target] of [
        ["GET", "/files/chown?path=a"],
        ["PUT", "/files/read?path=a"],
        ["POST", "/exec"],
      ] as const)
        expect(await ask(method, target)).toMatchObject(refusal(400, "invalid"));
    });
  });
}
