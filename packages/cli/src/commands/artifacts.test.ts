import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Artifact } from "@vivarium/sdk";
import { expect, test } from "vitest";
import { dir, inOwnDirectories, respond, S1, serve, viv } from "../../test-support/program.ts";
import { noProgress } from "../copy/progress.ts";
import { saveArtifact } from "./artifacts/save-artifact.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const AID = "art_aaaaaaaaaaaaaaaaaaaaa";
const pending: Artifact = { id: AID, status: "pending", session_id: S1, captured_at: at, expires_at: at };
const FILES: Record<string, string> = { "out/a.txt": "hello", "out/deep/b": "" };

/** A service with one artifact, which is ready when it is read. */
async function serveArtifact() {
  const { url, seen } = await serve((request, response) => {
    const ready = {
      ...pending,
      status: "ready",
      files: Object.entries(FILES).map(([name, content]) => ({
        path: name,
        url: `${url}/file/${encodeURIComponent(name)}`,
        size_bytes: content.length,
      })),
    };
    const [, name] = /^\/file\/(.*)$/.exec(request.url ?? "") ?? [];
    if (name !== undefined) response.writeHead(200).end(FILES[decodeURIComponent(name)]);
    else if (request.method === "POST") respond(response, 202, pending);
    else if (request.method === "DELETE") response.writeHead(204).end();
    else respond(response, 200, request.url?.startsWith("/v1/artifacts") ? ready : { artifacts: [ready] });
  });
  return { url, calls: () => seen.map((one) => [`${one.method} ${one.url}`, one.body]) };
}

test("a capture waits until the artifact is ready, and prints its id", async () => {
  const { url, calls } = await serveArtifact();
  const { out } = await viv(url, ["artifacts", "capture", S1, "out", "*.log"]);
  expect(out).toBe(`${AID}\n`);
  expect(calls()).toEqual([
    [`POST /v1/sessions/${S1}/artifacts`, { paths: ["out", "*.log"] }],
    [`GET /v1/artifacts/${AID}`, ""],
  ]);
});

test("a create keeps what it is asked to keep", async () => {
  const { url, seen } = await serve((_request, response) => respond(response, 200, { session_id: S1 }));
  await viv(url, ["create", "--keep", "out", "--keep", "*.log"]);
  expect(seen[0]?.body).toMatchObject({ artifacts: { paths: ["out", "*.log"] } });
});

test("an artifact is downloaded below a directory, and not again", async () => {
  const { url, calls } = await serveArtifact();
  const target = path.join(dir, "got");
  const first = await viv(url, ["artifacts", "get", "--json", AID, target]);
  expect(JSON.parse(first.out)).toMatchObject({ files: 2, bytes: 5, skipped: 0 });
  for (const [name, content] of Object.entries(FILES))
    expect(readFileSync(path.join(target, name), "utf8")).toBe(content);
  expect(readdirSync(path.join(target, "out"))).toEqual(["a.txt", "deep"]);
  const again = await viv(url, ["artifacts", "get", "--json", AID, target]);
  expect(JSON.parse(again.out)).toMatchObject({ files: 0, bytes: 0, skipped: 2 });
  expect(calls().filter(([call]) => String(call).includes("/file/out%2Fa.txt"))).toHaveLength(1);
});

test("a download that was interrupted continues where it was", async () => {
  const file = { path: "big", url: "http://x", size_bytes: 10 };
  const asked: number[] = [];
  const deps = (content: string, fails: boolean) => ({
    artifacts: {
      async *download(_file: unknown, { from = 0 } = {}) {
        asked.push(from);
        yield Buffer.from(content.slice(from, fails ? from + 4 : undefined));
        if (fails) throw new Error("broke off");
      },
    },
    progress: noProgress,
    signal: new AbortController().signal,
  });
  const artifact = { ...pending, files: [file] };
  await expect(saveArtifact(deps("0123456789", true), artifact, dir)).rejects.toThrow("broke off");
  expect(readdirSync(dir)).toContain(`big.${AID}.part`);
  expect(await saveArtifact(deps("0123456789", false), artifact, dir)).toMatchObject({ files: 1, bytes: 6 });
  expect(asked).toEqual([0, 4]);
  expect(readFileSync(path.join(dir, "big"), "utf8")).toBe("0123456789");
  expect(readdirSync(dir)).not.toContain(`big.${AID}.part`);
});

test.each(["../x", "/etc/x", "a/../../x", "a//b", "."])("the path %s is not written", async (name) => {
  writeFileSync(path.join(dir, "before"), "");
  const deps = {
    artifacts: { async *download() {} },
    progress: noProgress,
    signal: new AbortController().signal,
  };
  const artifact = { ...pending, files: [{ path: name, url: "http://x", size_bytes: 0 }] };
  await expect(saveArtifact(deps, artifact, path.join(dir, "in"))).rejects.toThrow("outside of the artifact");
  expect(readdirSync(dir).toSorted()).toEqual(["before", "control"]);
});

test("artifacts of a session are listed, those of one with their files, and deleted", async () => {
  const { url, calls } = await serveArtifact();
  expect((await viv(url, ["artifacts", "ls", S1])).out).toContain(AID);
  expect((await viv(url, ["artifacts", "ls", AID])).out).toContain("out/a.txt");
  expect((await viv(url, ["artifacts", "rm", AID])).out).toBe(`${AID}\n`);
  expect(calls().map(([call]) => call)).toEqual([
    `GET /v1/sessions/${S1}/artifacts`,
    `GET /v1/artifacts/${AID}`,
    `DELETE /v1/artifacts/${AID}`,
  ]);
});
