import { readdirSync } from "node:fs";
import path from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { dumpRows } from "../db/dump-rows.ts";

const DAY_MS = 86_400_000;
let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterEach(async () => {
  control.node.onGuest = (_asked, proceed) => proceed();
  await clock.reset();
  await control.destroyAll();
});
afterAll(() => control.close());

const write = async (id: string, files: Record<string, string>) => {
  for (const [name, content] of Object.entries(files))
    await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: name, content } });
};
const capture = (id: string, paths: string[]) =>
  control.ask(`POST /v1/sessions/${id}/artifacts`, { body: { paths } });
const read = async (aid: string) => (await control.ask(`GET /v1/artifacts/${aid}`)).body;
const settled = (aid: string) =>
  eventually(async () => {
    const manifest = await read(aid);
    if (manifest.status === "pending") throw new Error("still pending");
    return manifest;
  }, 30_000);
const captured = async (id: string, paths: string[]) => await settled((await capture(id, paths)).body.id);
const pathsOf = (manifest: { files?: { path: string }[] }) => manifest.files?.map((file) => file.path);
const objectsDir = () => path.join(control.settings.controlDir, "objects", "objects");
const objectsOf = (aid: string) =>
  readdirSync(objectsDir(), { recursive: true }).filter((name) => String(name).includes(`${aid}/`));
/** Downloads through the link, without a credential. */
const follow = (url: string, headers: Record<string, string> = {}) =>
  control.ask(`GET ${new URL(url).pathname}${new URL(url).search}`, { key: null, headers });
const eventsOf = async (id: string) =>
  (
    await control.ask(`GET /v1/events?session_id=${id}&types=artifact.*`, {
      headers: { accept: "application/json" },
    })
  ).body.events;

test("a capture is pending at once, and ready with its files, sizes, types and links", async () => {
  const id = await control.createLive();
  await write(id, { "out/a.txt": "hello", "out/deep/b.json": "{}", other: "x" });
  const asked = await capture(id, ["out"]);
  expect(asked.status).toBe(202);
  expect(asked.body).toMatchObject({ status: "pending", session_id: id });
  expect(asked.body).not.toHaveProperty("files");
  expect(asked.body.id).toMatch(/^art_[a-z0-9]{21}$/);
  const manifest = await settled(asked.body.id);
  expect(manifest).toMatchObject({
    status: "ready",
    files: [
      { path: "out/a.txt", size_bytes: 5, content_type: "text/plain" },
      { path: "out/deep/b.json", size_bytes: 2, content_type: "application/json" },
    ],
  });
  expect(new Date(manifest.expires_at).getTime() - new Date(manifest.captured_at).getTime()).toBe(7 * DAY_MS);
  expect((await control.ask(`GET /v1/sessions/${id}/artifacts/${manifest.id}`)).body.status).toBe("ready");
  expect((await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts).toMatchObject([
    { id: manifest.id },
  ]);
  expect(await eventsOf(id)).toMatchObject([
    { type: "artifact.ready", data: { artifact_id: manifest.id, size_bytes: 7 } },
  ]);
});

test.each([
  [["*.txt"], ["a.txt", "b.txt"]],
  [
    ["**/*.txt", "a.txt"],
    ["a.txt", "b.txt", "d/c.txt"],
  ],
  [["/workspace/d"], ["d/c.txt", "d/e/f"]],
  [["."], ["[x]", "a.txt", "b.txt", "d/c.txt", "d/e/f"]],
  [["d/../a.txt", "none"], ["a.txt"]],
])("paths %j capture %j", async (paths, expected) => {
  const id = await control.createLive();
  await write(id, { "a.txt": "1", "b.txt": "1", "d/c.txt": "1", "d/e/f": "1", "[x]": "1" });
  expect(pathsOf(await captured(id, paths))).toEqual(expected);
});

test("a capture of no file has failed, and says so", async () => {
  const id = await control.createLive();
  const manifest = await captured(id, ["none", "*.x"]);
  expect(manifest).toMatchObject({ status: "failed", error: "no file matches the paths" });
  expect(manifest).not.toHaveProperty("files");
  expect(await eventsOf(id)).toMatchObject([{ type: "artifact.failed", data: { artifact_id: manifest.id } }]);
});

test.each([
  [{}, /^paths: /],
  [{ paths: [] }, /^paths: must hold at least one/],
  [{ paths: Array(65).fill("a") }, /^paths: must hold at most 64/],
  [{ paths: ["../etc"] }, /^paths\[0\]: path must be under \/workspace/],
  [{ paths: ["/etc/passwd"] }, /^paths\[0\]: path must be under/],
  [{ paths: ["a/../../b"] }, /under/],
  [{ paths: ["a\0b"] }, /NUL/],
  [{ paths: [1] }, /^paths\[0\]/],
  [{ paths: ["a"], destination: { type: "s3" } }, /^destination\.type: /],
  [{ paths: ["a"], destination: { type: "hosted", bucket: "b" } }, /^destination\.bucket: unknown field/],
])("the body %j is refused", async (body, message) => {
  const id = await control.createLive();
  const answer = await control.ask(`POST /v1/sessions/${id}/artifacts`, { body });
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});

test("a file comes back byte for byte, whole and in ranges, as a download that no page can run", async () => {
  const id = await control.createLive();
  const content = Array.from({ length: 860_000 }, (_, n) => `${n % 9973} `).join("");
  await write(id, { "big é.html": content });
  const { files } = await captured(id, ["*.html"]);
  expect(files[0].size_bytes).toBe(Buffer.byteLength(content));
  const whole = await follow(files[0].url);
  expect(whole.status).toBe(200);
  expect(whole.text === content).toBe(true);
  expect(whole.headers).toMatchObject({
    "content-type": "text/html",
    "content-length": String(content.length),
    "content-disposition": "attachment; filename*=UTF-8''big%20%C3%A9.html",
    "x-content-type-options": "nosniff",
    "accept-ranges": "bytes",
  });
  for (const [range, first, last] of [
    ["bytes=0-9", 0, 9],
    ["bytes=4194300-4194310", 4_194_300, 4_194_310],
    [`bytes=${content.length - 3}-`, content.length - 3, content.length - 1],
    ["bytes=-5", content.length - 5, content.length - 1],
    ["bytes=0-99999999999", 0, content.length - 1],
  ] as const) {
    const part = await follow(files[0].url, { range });
    expect(part.status).toBe(206);
    expect(part.headers["content-range"]).toBe(`bytes ${first}-${last}/${content.length}`);
    expect(part.text === content.slice(first, last + 1)).toBe(true);
  }
  expect((await follow(files[0].url, { range: `bytes=${content.length}-` })).status).toBe(416);
  expect((await follow(files[0].url, { range: "bytes=1-2", "if-range": '"other"' })).status).toBe(200);
  const same = { range: "bytes=1-2", "if-range": String(whole.headers.etag) };
  expect((await follow(files[0].url, same)).status).toBe(206);
});

test("an empty file is a file", async () => {
  const id = await control.createLive();
  await write(id, { empty: "" });
  const { files } = await captured(id, ["empty"]);
  expect(files).toMatchObject([{ path: "empty", size_bytes: 0 }]);
  const whole = await follow(files[0].url);
  expect([whole.status, whole.text, whole.headers["content-length"]]).toEqual([200, "", "0"]);
});

test("a dump of the rows begins with every object of artifacts, by their keys, and with volumes", async () => {
  const id = await control.createLive();
  await write(id, { a: "a", b: "b", "same-as-b": "b", empty: "" });
  const { id: aid } = await captured(id, ["*"]);
  const { id: failed } = await captured(id, ["nothing"]);
  const made = await control.ask("POST /v1/volumes", { body: {} });
  const lines: string[] = [];
  await dumpRows(control.settings.databaseUrl, async (line) => void lines.push(line));
  const { artifacts, volumes } = JSON.parse(lines[0] ?? "");
  const { prefix, objects } = artifacts.find((one: { prefix: string }) => one.prefix.includes(aid));
  expect(objects.map((name: string) => `${prefix}${name}@`).toSorted()).toEqual(objectsOf(aid).toSorted());
  expect(objects).toHaveLength(2);
  expect(JSON.stringify(artifacts)).not.toContain(failed);
  expect(volumes).toEqual([made.body.id]);
  await control.ask(`DELETE /v1/volumes/${made.body.id}`);
});

test("a link that was changed, has lapsed, or whose artifact is gone opens nothing", async () => {
  const id = await control.createLive();
  await write(id, { a: "1", b: "2" });
  const { id: aid, files } = await captured(id, ["*"]);
  const url = new URL(files[0].url);
  const until = Number(url.searchParams.get("until"));
  const lasts = until * 1000 - Date.now();
  expect(lasts).toBeGreaterThan(LIMITS.artifactLinkMs - 60_000);
  expect(lasts).toBeLessThanOrEqual(LIMITS.artifactLinkMs);
  for (const wrong of [
    files[0].url.replace("/files/0", "/files/1"),
    files[0].url.replace(`until=${until}`, `until=${until + 1}`),
    files[0].url.replace(`until=${until}`, "until=0"),
    files[0].url.replace(/signature=.*/, "signature="),
    files[0].url.replace(/signature=..../, "signature=AAAA"),
  ])
    expect((await follow(wrong)).status, wrong).toBe(403);
  expect((await follow(files[0].url.replace(/\?.*/, ""))).status).toBe(400);
  expect((await control.ask(`DELETE /v1/artifacts/${aid}`)).status).toBe(204);
  expect((await follow(files[0].url)).status).toBe(404);
});

test("a deleted artifact is gone with its files, and its objects follow", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  const { id: aid } = await captured(id, ["a"]);
  expect(objectsOf(aid).length).toBeGreaterThan(0);
  expect((await control.ask(`DELETE /v1/artifacts/${aid}`)).status).toBe(204);
  expect((await control.ask(`GET /v1/artifacts/${aid}`)).status).toBe(404);
  expect((await control.ask(`DELETE /v1/artifacts/${aid}`)).status).toBe(404);
  expect((await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts).toEqual([]);
  await eventually(() => expect(objectsOf(aid)).toEqual([]));
});

test("objects say nothing of the files without the key of their artifact", async () => {
  const id = await control.createLive();
  await write(id, { secret: "hunter2 ".repeat(1000) });
  const { id: aid } = await captured(id, ["secret"]);
  const { rows } = await control.sql.query("select kek_id, data_key from artifacts where id = $1", [aid]);
  expect(rows[0].kek_id).toBe("kek_1");
  for (const name of objectsOf(aid).filter((name) => String(name).endsWith("@"))) {
    const { readFileSync } = await import("node:fs");
    expect(readFileSync(path.join(objectsDir(), String(name))).includes("hunter2")).toBe(false);
  }
});

test("an expired artifact is a 404 and an event, and its objects are removed", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  const { id: aid, files } = await captured(id, ["a"]);
  await clock.advance(7 * DAY_MS + 1000);
  expect((await control.ask(`GET /v1/artifacts/${aid}`)).status).toBe(404);
  expect((await follow(files[0].url)).status).toBe(404);
  await eventually(async () =>
    expect((await eventsOf(id)).map(({ type }: { type: string }) => type)).toContain("artifact.expired"),
  );
  await eventually(() => expect(objectsOf(aid)).toEqual([]));
});

test("an extension moves the expiry later, up to the cap, and never earlier", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  const { id: aid, captured_at } = await captured(id, ["a"]);
  const extend = (ttl_days: unknown) =>
    control.ask(`POST /v1/artifacts/${aid}/extend`, { body: { ttl_days } });
  const daysOf = (answer: { body: { expires_at: string } }) =>
    (new Date(answer.body.expires_at).getTime() - new Date(captured_at).getTime()) / DAY_MS;
  expect(daysOf(await extend(1))).toBe(7);
  expect(daysOf(await extend(30))).toBeCloseTo(30, 2);
  expect(daysOf(await extend(10))).toBeCloseTo(30, 2);
  expect(daysOf(await extend(100_000))).toBe(90);
  expect(daysOf(await extend(91))).toBe(90);
  for (const wrong of [0, -1, 1.5, "3", undefined]) expect((await extend(wrong)).status).toBe(400);
  expect((await control.ask("POST /v1/artifacts/art_x/extend", { body: { ttl_days: 1 } })).status).toBe(404);
});

test("a capture wakes a paused session", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  expect(pathsOf(await captured(id, ["a"]))).toEqual(["a"]);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("live");
});

test("what create wanted is captured before the machine is deleted, and stays readable", async () => {
  const id = await control.createLive({ artifacts: { paths: ["out/**"] } });
  await write(id, { "out/a": "kept" });
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404);
  const [{ id: aid }] = (await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts;
  const manifest = await settled(aid);
  expect(pathsOf(manifest)).toEqual(["out/a"]);
  expect((await follow(manifest.files[0].url)).text).toBe("kept");
  await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
  expect((await control.ask(`GET /v1/sessions/${id}/artifacts/${aid}`)).status).toBe(200);
  await control.sql.query("delete from sessions where id = $1", [id]);
  expect((await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts).toMatchObject([{ id: aid }]);
});

test("a machine waits for its capture for a minute, and no longer", async () => {
  let reads = 0;
  control.node.onGuest = async (asked, proceed) => {
    if (asked.call !== "GET files/match") return await proceed();
    reads++;
    await asked.gone;
  };
  const id = await control.createLive({ artifacts: { paths: ["out"] } });
  await control.ask(`DELETE /v1/sessions/${id}`);
  await eventually(() => expect(reads).toBeGreaterThan(0));
  expect(control.node.machines.has(`${id}-1`)).toBe(true);
  await clock.advance(LIMITS.artifactTeardownMs);
  await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
  const manifest = await eventually(async () => {
    const [one] = (await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts;
    expect(one.status).toBe("failed");
    return one;
  });
  expect(manifest.error).toBe("the capture took longer than it may");
});

test("a session that is destroyed while it is captured on request fails the capture", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  control.node.onGuest = async (asked, proceed) => {
    if (asked.call !== "GET files/read") return await proceed();
    await control.ask(`DELETE /v1/sessions/${id}`);
    asked.breakOff();
  };
  expect(await captured(id, ["a"])).toMatchObject({ status: "failed" });
});

test("a file that is gone, or has become a link, is left out; one that keeps changing fails the capture", async () => {
  const id = await control.createLive();
  await write(id, { a: "1", gone: "1", broken: "1" });
  control.node.onGuest = async (asked, proceed) => {
    if (asked.query.path === "gone")
      return asked.response.writeHead(404).end('{"code":"no_such_file","message":"x"}') as never;
    await proceed();
  };
  expect(pathsOf(await captured(id, ["a", "gone"]))).toEqual(["a"]);
  control.node.onGuest = async (asked, proceed) => {
    if (asked.query.path !== "broken") return await proceed();
    const response = asked.response.writeHead(200, { "content-length": 10 });
    await new Promise((sent) => response.write("12", sent));
    asked.breakOff();
  };
  await control.sql.query("update vivarium_jobs.queue set retry_delay = 0, retry_backoff = false");
  const manifest = await captured(id, ["a", "broken"]);
  expect(manifest).toMatchObject({ status: "failed", error: "a file kept changing while it was read" });
  await eventually(() => expect(objectsOf(manifest.id)).toEqual([]));
});

test("names that lead elsewhere, more files and more bytes than allowed are not believed", async () => {
  const id = await control.createLive();
  await write(id, { a: "1" });
  const list = async (files: { path: string; bytes: number }[], truncated = false) => {
    control.node.onGuest = async (asked, proceed) => {
      if (asked.call === "GET files/match") asked.json({ files, truncated, duration_us: 1 });
      else await proceed();
    };
    return await captured(id, ["*"]);
  };
  const lying = ["../../x", "/etc/passwd", "a/../b", "./a", "a//b", "a"].map((path) => ({ path, bytes: 1 }));
  expect(pathsOf(await list(lying))).toEqual(["a"]);
  const many = Array.from({ length: 10_001 }, (_, n) => ({ path: `f${n}`, bytes: 0 }));
  expect((await list(many)).error).toMatch(/^more than 10000 files/);
  expect((await list([{ path: "a", bytes: 1024 ** 4 }])).error).toMatch(/more than 5 GiB/);
  expect((await list([{ path: "a", bytes: 1 }], true)).error).toMatch(
    /more files than a capture can look through/,
  );
});

test("an organisation has a limited number of captures in progress", async () => {
  const key = await control.addKey();
  const id = await control.createLive({}, key);
  control.node.onGuest = async (asked) => await asked.gone;
  const ask = () => control.ask(`POST /v1/sessions/${id}/artifacts`, { key, body: { paths: ["a"] } });
  const answers = [];
  for (let n = 0; n <= LIMITS.artifactsPending; n++) answers.push((await ask()).status);
  expect(answers).toEqual([...Array(LIMITS.artifactsPending).fill(202), 429]);
  for (const { id: aid } of (await control.ask(`GET /v1/sessions/${id}/artifacts`, { key })).body.artifacts)
    expect((await control.ask(`DELETE /v1/artifacts/${aid}`, { key })).status).toBe(204);
});
