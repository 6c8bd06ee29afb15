/** Builds of the fake node: images are entries of a map, and each stage takes a turn of the event loop, or a test's hook. */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import {
  BUILD_STAGES,
  type BuildFailure,
  BuildId,
  type BuildLog,
  BuildSpec,
  type BuildStatus,
} from "@vivarium/contract/node";
import { locate } from "./files.ts";
import { Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

/** An image that the fake registries have. */
export interface FakeImage {
  /** Bytes of each layer. */
  layers: number[];
  /** Makes its digest, which otherwise comes from its reference. */
  content?: string;
  /** Without this credential the registry refuses. */
  login?: { username: string; password: string };
}

/** Thrown by a hook: the build fails with it. */
export class BuildFailed extends Error {
  readonly failure: BuildFailure;
  constructor(failure: Omit<BuildFailure, "message"> & { message?: string }) {
    super(failure.message ?? failure.word);
    this.failure = { message: this.message, ...failure };
  }
}

export interface FakeBuild {
  spec: Omit<BuildSpec, "credential" | "image" | "machine_id">;
  credential: BuildSpec["credential"];
  image: BuildSpec["image"];
  machineId?: string | undefined;
  status: BuildStatus;
  log: BuildLog["lines"];
  /** Aborts when the build is deleted, or its daemon ends. */
  over: AbortController;
  /** Settled while nothing works for the build. */
  work: Promise<void>;
}

export function buildId(id: string): string {
  if (BuildId.safeParse(id).success) return id;
  throw new Refusal("build_not_found", "no build of this name on this node");
}

export function findBuild({ builds }: NodeState, id: string): FakeBuild {
  const build = builds.get(id);
  if (!build) throw new Refusal("build_not_found", `no build ${id} on this node`);
  return build;
}

export function buildStatus(state: NodeState, { status }: FakeBuild): BuildStatus {
  if (status.state !== "queued") return status;
  const waiting = [...state.builds.values()].filter((one) => one.status.state === "queued");
  return { ...status, place: waiting.findIndex((one) => one.status === status) + 1 };
}

export function listBuilds(state: NodeState): BuildStatus[] {
  return [...state.builds.values()].map((build) => buildStatus(state, build));
}

export function putBuild(state: NodeState, id: string, body: unknown): BuildStatus {
  const { credential, image, machine_id: machineId, ...spec } = valid(BuildSpec.safeParse(body));
  const known = state.builds.get(id);
  if (known && JSON.stringify(known.spec) !== JSON.stringify(spec))
    throw new Refusal("build_conflict", `build ${id} exists with other parameters`);
  if (known && known.status.state !== "failed") return buildStatus(state, known);
  const build: FakeBuild = {
    spec,
    credential,
    image: image ?? known?.status.image?.reference,
    machineId,
    status: { build_id: id, state: "queued" },
    log: known?.log ?? [],
    over: new AbortController(),
    work: Promise.resolve(),
  };
  // Behind the others: a map keeps the order in which its keys were added.
  state.builds.delete(id);
  state.builds.set(id, build);
  startNextBuild(state);
  return buildStatus(state, build);
}

function startNextBuild(state: NodeState): void {
  const builds = [...state.builds.values()];
  if (builds.some(({ status }) => status.state === "building")) return;
  const build = builds.find(({ status }) => status.state === "queued");
  if (!build) return;
  build.status = { build_id: build.status.build_id, state: "building" };
  build.work = runBuild(state, build)
    .catch((error: unknown) => fail(build, error))
    .then(() => startNextBuild(state));
}

async function runBuild(state: NodeState, build: FakeBuild): Promise<void> {
  const { build_id: id } = build.status;
  const { signal } = build.over;
  for (const stage of BUILD_STAGES) {
    build.status = { ...build.status, stage };
    note(build, stage);
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    aborted.catch(() => {});
    signal.throwIfAborted();
    await Promise.race([Promise.resolve(state.onBuild(id, stage)), aborted]);
    if (stage === "pull") await (build.spec.layout === undefined ? pull : readLayout)(state, build);
  }
  const { progress: _, ...done } = build.status;
  build.status = { ...done, state: "ready", disk_sha256: sha256(id), sizes: [...build.spec.sizes] };
}

/** The fake reads the index of a layout alone, whose content stands for the image's. */
async function readLayout({ machines }: NodeState, build: FakeBuild): Promise<void> {
  const { reference, layout = "" } = build.spec;
  const machine = machines.get(build.machineId ?? "");
  if (machine?.state !== "running")
    throw new BuildFailed({ word: "internal", message: "the machine is away", is_transient: true });
  const index = await locate(machine, `${layout}/index.json`)
    .then((path) => readFile(path))
    .catch(() => undefined);
  if (!index)
    throw new BuildFailed({
      ...{ word: "image_not_found", is_transient: false },
      message: "the layout has no regular file oci-layout",
    });
  const digest = `sha256:${createHash("sha256").update(index).digest("hex")}`;
  const bytes = { done: index.length, total: index.length };
  build.status = {
    ...build.status,
    progress: { layers: { done: 1, total: 1 }, bytes },
    image: { reference: `${reference}@${digest}`, manifest_digest: digest },
  };
}

/** An image by its reference. One with a digest is found without it too, if the image has that. */
function findImage({ images }: NodeState, reference: string) {
  const [name = "", wanted] = reference.split("@");
  for (const key of [reference, name]) {
    const image = images.get(key);
    const digest = `sha256:${sha256(image?.content ?? name)}`;
    if (image && (key === reference || digest === wanted)) return { ...image, name, digest };
  }
  return undefined;
}

function pull(state: NodeState, build: FakeBuild): void {
  const reference = build.image ?? build.spec.reference;
  const image = findImage(state, reference);
  const refuse = (word: BuildFailure["word"], message: string) =>
    new BuildFailed({ word, message, is_transient: false });
  if (!image) throw refuse("image_not_found", `the registry has no image ${reference}`);
  const { login } = image;
  const { credential } = build;
  const isRight =
    credential?.registry === reference.split("/")[0] &&
    credential?.username === login?.username &&
    credential?.password === login?.password;
  if (login && !isRight) throw refuse("registry_auth", "the registry refuses the credential, or wants one");
  const total = image.layers.reduce((sum, bytes) => sum + bytes, 0);
  const count = image.layers.length;
  build.status = {
    ...build.status,
    progress: { layers: { done: count, total: count }, bytes: { done: total, total } },
    image: { reference: `${image.name}@${image.digest}`, manifest_digest: image.digest },
  };
}

function fail(build: FakeBuild, error: unknown): void {
  const failure =
    error instanceof BuildFailed
      ? error.failure
      : { word: "internal" as const, message: "unexpected failure on the node", is_transient: true };
  build.status = { ...build.status, state: "failed", failure };
  note(build, `failed: ${failure.message}`);
}

function note(build: FakeBuild, text: string): void {
  build.log.push({ at: new Date().toISOString(), text });
}

/** Builds whose daemon ends fail: nobody has their credentials any more. */
export async function interruptBuilds(state: NodeState): Promise<void> {
  const message = "the node's daemon restarted";
  const interruption = new BuildFailed({ word: "interrupted", message, is_transient: true });
  for (const build of state.builds.values()) {
    build.credential = undefined;
    build.over.abort(interruption);
    if (build.status.state === "queued") fail(build, interruption);
  }
  await Promise.all([...state.builds.values()].map(({ work }) => work));
}

export async function deleteBuild(state: NodeState, id: string): Promise<void> {
  const build = state.builds.get(id);
  if (!build) return;
  state.builds.delete(id);
  build.over.abort(new Error("the build was deleted"));
  await build.work;
  startNextBuild(state);
}

export function canStartBuild({ builds }: NodeState, template: string, size: string): boolean {
  return builds.get(template)?.status.sizes?.includes(size) ?? false;
}

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
