/** The behaviour of every implementation of contract/node with builds, which make templates of container images. */
import { BUILD_FAILURES, BUILD_STAGES, BuildList, BuildLog, BuildStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ContractedNode, machinePath, newMachineId, refusal, startSpec } from "./contracted-node.ts";

/** A node that can build, and references that its registries answer. */
export interface BuildingNode extends ContractedNode {
  images: {
    /** Two that everybody may pull. */
    open: string;
    other: string;
    missing: string;
    closed: { reference: string; credential: { registry: string; username: string; password: string } };
  };
  /** Stops the build at the beginning of its first stage, until the result is called. */
  holdBuilds(): () => void;
  /** Ends the daemon with kill -9, and starts it again. */
  restart(): Promise<void>;
}

/** How long a build may take, and how often it is looked at meanwhile. */
export interface BuildTraits {
  withinMs: number;
  pollMs: number;
}

export function buildContract(
  makeNode: () => Promise<BuildingNode>,
  { withinMs, pollMs }: BuildTraits,
): void {
  let node: BuildingNode;
  const used: string[] = [];
  const call = (method: string, path: string, body?: unknown) => node.call(method, path, body);
  const pathOf = (id: string) => `/v1/builds/${id}`;
  const newBuild = () => {
    const id = `tpl_${randomId()}`;
    used.push(id);
    return id;
  };
  const specOf = (reference: string, over: object = {}) => ({ reference, sizes: ["small"], ...over });
  const put = (id: string, spec: object) => call("PUT", pathOf(id), spec);
  const remove = (id: string) => call("DELETE", pathOf(id));
  const statusOf = async (id: string) => BuildStatus.parse((await call("GET", pathOf(id))).body);
  const logOf = async (id: string) => BuildLog.parse((await call("GET", `${pathOf(id)}/log`)).body).lines;
  const until = async (id: string, check: (status: BuildStatus) => boolean): Promise<BuildStatus> => {
    for (let waitedMs = 0; ; waitedMs += pollMs) {
      const status = await statusOf(id);
      if (check(status)) return status;
      if (waitedMs > withinMs * SLOWNESS) throw new Error(`the build is ${JSON.stringify(status)}`);
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  };
  const isOver = ({ state }: BuildStatus) => state === "ready" || state === "failed";

  beforeAll(async () => {
    node = await makeNode();
  });
  afterAll(async () => {
    for (const id of used) await remove(id);
    await node?.close?.();
  });

  describe("a build", () => {
    test("waits, runs and is a template then, which machines start from", async () => {
      const id = newBuild();
      const spec = specOf(node.images.open, { sizes: ["small", "medium"] });
      const first = BuildStatus.parse((await put(id, spec)).body);
      expect(first).toMatchObject({ build_id: id, state: expect.stringMatching(/^(queued|building)$/) });
      const done = await until(id, isOver);
      expect(done).toEqual({
        build_id: id,
        state: "ready",
        stage: "bake",
        image: {
          reference: expect.stringMatching(/^[^@]+@sha256:[0-9a-f]{64}$/),
          manifest_digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
        },
        disk_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
        sizes: ["small", "medium"],
      });
      expect(await put(id, spec)).toMatchObject({ status: 200, body: done });
      const machineId = newMachineId();
      expect(await call("PUT", machinePath(machineId), startSpec({ template: id }))).toMatchObject({
        status: 200,
        body: { state: "running" },
      });
      expect(await remove(id)).toMatchObject({ status: 204 });
      expect(await call("GET", machinePath(machineId))).toMatchObject({ body: { state: "running" } });
      expect(await call("DELETE", machinePath(machineId))).toMatchObject({ status: 204 });
      expect(await call("PUT", machinePath(newMachineId()), startSpec({ template: id }))).toMatchObject(
        refusal(404, "template_unavailable"),
      );
    });

    test("has a log, which names its stages in order, and is in the list", async () => {
      const id = newBuild();
      await put(id, specOf(node.images.open));
      await until(id, isOver);
      const lines = await logOf(id);
      expect(lines.length).toBeGreaterThanOrEqual(BUILD_STAGES.length);
      const at = lines.map((line) => Date.parse(line.at));
      expect(at).toEqual(at.toSorted((a, b) => a - b));
      const { builds } = BuildList.parse((await call("GET", "/v1/builds")).body);
      expect(builds.filter((one) => one.build_id === id)).toEqual([await statusOf(id)]);
    });

    test("is not changed by another body, and pulls the image that an earlier attempt has found", async () => {
      const id = newBuild();
      await put(id, specOf(node.images.open));
      for (const other of [specOf(node.images.other), specOf(node.images.open, { sizes: ["medium"] })])
        expect(await put(id, other)).toMatchObject(refusal(409, "build_conflict"));
      const { credential } = node.images.closed;
      expect(await put(id, specOf(node.images.open, { credential }))).toMatchObject({ status: 200 });
      const { image } = await until(id, isOver);
      // As if the tag were gone, or led elsewhere by now.
      const later = newBuild();
      await put(later, specOf(node.images.missing, { image: image?.reference }));
      expect(await put(later, specOf(node.images.missing))).toMatchObject({ status: 200 });
      expect(await until(later, isOver)).toMatchObject({ state: "ready", image });
    });

    test("of another name is not there, and one that does not fit is refused", async () => {
      for (const id of [`tpl_${randomId()}`, "tpl_x", "..%2fx"]) {
        expect(await call("GET", pathOf(id))).toMatchObject(refusal(404, "build_not_found"));
        expect(await call("GET", `${pathOf(id)}/log`)).toMatchObject(refusal(404, "build_not_found"));
      }
      expect(await put("tpl_x", specOf(node.images.open))).toMatchObject(refusal(404, "build_not_found"));
      for (const body of [
        {},
        { reference: node.images.open },
        specOf(""),
        specOf(node.images.open, { sizes: [] }),
        specOf(node.images.open, { sizes: ["huge"] }),
        specOf(node.images.open, { credential: { registry: "x", username: "u" } }),
        specOf(node.images.open, { credential: { registry: "x", username: "u", password: "" } }),
      ])
        expect(await put(newBuild(), body)).toMatchObject(refusal(400, "invalid"));
    });

    test("that is deleted is gone, a second time too", async () => {
      const id = newBuild();
      await put(id, specOf(node.images.open));
      await until(id, isOver);
      for (let time = 0; time < 2; time++) expect(await remove(id)).toMatchObject({ status: 204 });
      expect(await call("GET", pathOf(id))).toMatchObject(refusal(404, "build_not_found"));
    });
  });

  describe("a build that cannot succeed", () => {
    test("fails with a word of the list, and begins again when it is put again", async () => {
      const id = newBuild();
      const spec = specOf(node.images.missing);
      await put(id, spec);
      const failed = await until(id, isOver);
      expect(failed).toMatchObject({
        state: "failed",
        stage: "pull",
        failure: { word: "image_not_found", message: expect.stringMatching(/^[^\n]+$/), is_transient: false },
      });
      expect(BUILD_FAILURES).toContain(failed.failure?.word);
      const lines = (await logOf(id)).length;
      expect(BuildStatus.parse((await put(id, spec)).body).failure).toBeUndefined();
      await until(id, isOver);
      expect((await logOf(id)).length).toBeGreaterThan(lines);
      expect(await call("PUT", machinePath(newMachineId()), startSpec({ template: id }))).toMatchObject(
        refusal(404, "template_unavailable"),
      );
    });

    test("gets its image with the credential of its registry alone, which no answer has", async () => {
      const { reference, credential } = node.images.closed;
      const wrong = [
        undefined,
        { ...credential, password: `${credential.password}x` },
        { ...credential, registry: "other.example.com" },
      ];
      const id = newBuild();
      for (const one of wrong) {
        await put(id, specOf(reference, { credential: one }));
        expect(await until(id, isOver)).toMatchObject({
          state: "failed",
          failure: { word: "registry_auth", is_transient: false },
        });
      }
      await put(id, specOf(reference, { credential }));
      expect(await until(id, isOver)).toMatchObject({ state: "ready" });
      const answers = await Promise.all(
        [pathOf(id), `${pathOf(id)}/log`, "/v1/builds", "/v1/info"].map((path) => call("GET", path)),
      );
      expect(JSON.stringify(answers)).not.toContain(credential.password);
    });
  });

  describe("builds beside each other", () => {
    test("run one at a time, in the order in which they came, and a deleted one makes way", async () => {
      const release = node.holdBuilds();
      const [one, two, three] = [newBuild(), newBuild(), newBuild()];
      for (const id of [one, two, three]) await put(id, specOf(node.images.open));
      await until(one, ({ state }) => state === "building");
      expect(await statusOf(two)).toEqual({ build_id: two, state: "queued", place: 1 });
      expect(await statusOf(three)).toEqual({ build_id: three, state: "queued", place: 2 });
      expect(await remove(two)).toMatchObject({ status: 204 });
      expect(await statusOf(three)).toMatchObject({ place: 1 });
      expect(await remove(one)).toMatchObject({ status: 204 });
      await until(three, ({ state }) => state !== "queued");
      release();
      expect(await until(three, isOver)).toMatchObject({ state: "ready" });
      expect(await statusOf(three)).not.toHaveProperty("place");
    });

    test("are interrupted by the end of their daemon, and go further when they are put again", async () => {
      const done = newBuild();
      await put(done, specOf(node.images.open));
      const ready = await until(done, isOver);
      const release = node.holdBuilds();
      const [running, waiting] = [newBuild(), newBuild()];
      const { reference, credential } = node.images.closed;
      await put(running, specOf(reference, { credential }));
      await put(waiting, specOf(node.images.other));
      await until(running, ({ state }) => state === "building");
      await node.restart();
      release();
      expect(await statusOf(done)).toEqual(ready);
      for (const id of [running, waiting])
        expect(await until(id, isOver)).toMatchObject({
          state: "failed",
          failure: { word: "interrupted", is_transient: true },
        });
      await put(running, specOf(reference, { credential }));
      await put(waiting, specOf(node.images.other));
      for (const id of [running, waiting])
        expect(await until(id, isOver)).toMatchObject({ state: "ready", sizes: ["small"] });
    });
  });
}
