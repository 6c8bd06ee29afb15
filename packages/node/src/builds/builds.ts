/** The builds of this node (contract/node builds.ts): one runs at a time, and the others wait in the order of their calls. */
import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import type { BuildSpec, BuildStatus, BuildLog as Lines } from "@vivarium/contract/node";
import { BuildId } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { KeyedQueue } from "@vivarium/kit/keyed-queue";
import { removeHalfRemoved, removeInSteps } from "../disks/remove-folder.ts";
import { NodeError } from "../node-error.ts";
import { buildsDir } from "../snapshots/built-baselines.ts";
import { type Build, become } from "./build.ts";
import { BuildLog } from "./build-log.ts";
import type { BuildDeps } from "./deps.ts";
import { failureOf, Interruption, isOwnFault } from "./failure.ts";
import { type KeptSpec, readRecord, writeRecord } from "./record.ts";
import { layersDir, removeRest, runBuild } from "./run-build.ts";

export class Builds {
  readonly #deps: BuildDeps;
  readonly #run: typeof runBuild;
  /** In the order in which they were put. */
  readonly #builds = new Map<string, Build>();
  /** Calls of one build, in order. */
  readonly #calls = new KeyedQueue();
  #isRunning = false;
  #isClosed = false;

  private constructor(deps: BuildDeps, run: typeof runBuild) {
    this.#deps = deps;
    this.#run = run;
  }

  /** Call once no machine of an earlier daemon works for a build: removes what builds left that were cut off. */
  static async open(deps: BuildDeps, run = runBuild): Promise<Builds> {
    const builds = new Builds(deps, run);
    const parent = buildsDir(deps.config.dataDir);
    await mkdir(parent, { recursive: true, mode: 0o711 });
    await removeHalfRemoved(parent);
    // One build may not keep the daemon from starting.
    for (const id of await readdir(parent))
      await builds
        .#restore(id)
        .catch((err: unknown) => deps.log.error({ build: id, err }, "a build was left"));
    return builds;
  }

  async #restore(id: string): Promise<void> {
    const dir = this.#dirOf(id);
    const record = BuildId.safeParse(id).success ? await readRecord(dir) : undefined;
    if (!record) return await rm(dir, { recursive: true, force: true });
    const build = { ...newBuild(dir, record.spec, await BuildLog.open(dir)), status: record.status };
    this.#builds.set(id, build);
    if (build.status.state === "ready") return await rm(layersDir(dir), { recursive: true, force: true });
    await removeRest(dir);
    if (build.status.state !== "failed") await this.#fail(build, new Interruption());
  }

  list(): BuildStatus[] {
    return [...this.#builds.values()].map((build) => this.#statusOf(build));
  }

  find(id: string): BuildStatus {
    return this.#statusOf(this.#known(id));
  }

  logOf(id: string): Lines {
    return { lines: [...this.#known(id).log.lines] };
  }

  async put(id: string, body: BuildSpec): Promise<BuildStatus> {
    const { credential, image, machine_id: machineId, ...spec } = body;
    return await this.#calls.run(id, async () => {
      if (this.#isClosed) throw new NodeError("internal", "the node's daemon ends");
      const known = this.#builds.get(id);
      if (known && !isSame(known.spec, spec))
        throw new NodeError("build_conflict", `build ${id} exists with other parameters`);
      if (known && known.status.state !== "failed") return this.#statusOf(known);
      // It may be about to end.
      await known?.work;
      const build = await this.#queue(id, spec, known?.log);
      build.credential = credential;
      build.image = image ?? known?.status.image?.reference;
      build.machineId = machineId;
      this.#startNext();
      return this.#statusOf(build);
    });
  }

  /** Behind the others: a map keeps the order in which its keys were added. */
  async #queue(id: string, spec: KeptSpec, log?: BuildLog): Promise<Build> {
    const dir = this.#dirOf(id);
    await mkdir(dir, { recursive: true, mode: 0o711 });
    const build = newBuild(dir, spec, log ?? (await BuildLog.open(dir)));
    await writeRecord(dir, build);
    crashPoint("build.recorded");
    this.#builds.delete(id);
    this.#builds.set(id, build);
    return build;
  }

  /** Resolves once nothing works for the build any more. Unknown ones are removed: a removal may have failed before. */
  async remove(id: string): Promise<void> {
    await this.#calls.run(id, async () => {
      const build = this.#builds.get(id);
      this.#builds.delete(id);
      build?.over.abort(new Error("the build was deleted"));
      await build?.work;
      await build?.log.flush();
      await removeInSteps(this.#dirOf(id), () => crashPoint("build.removed"));
    });
  }

  /** Ends what runs: nobody has the credentials of these builds any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#builds.values()];
    for (const build of all) {
      if (build.status.state === "queued") await this.#fail(build, new Interruption());
      build.over.abort(new Interruption());
    }
    await Promise.all(all.map(({ work }) => work));
    await Promise.all(all.map(({ log }) => log.flush()));
  }

  #dirOf(id: string): string {
    return path.join(buildsDir(this.#deps.config.dataDir), id);
  }

  #known(id: string): Build {
    const build = this.#builds.get(id);
    if (build) return build;
    throw new NodeError("build_not_found", `no build ${id} on this node`);
  }

  #statusOf({ status }: Build): BuildStatus {
    if (status.state !== "queued") return status;
    const waiting = [...this.#builds.values()].filter((one) => one.status.state === "queued");
    return { ...status, place: waiting.findIndex((one) => one.status === status) + 1 };
  }

  #startNext(): void {
    if (this.#isRunning || this.#isClosed) return;
    const build = [...this.#builds.values()].find(({ status }) => status.state === "queued");
    if (!build) return;
    this.#isRunning = true;
    build.status = { build_id: build.status.build_id, state: "building" };
    build.work = this.#run(this.#deps, build)
      .catch((error: unknown) => this.#fail(build, error))
      .finally(() => {
        build.credential = undefined;
        this.#isRunning = false;
        this.#startNext();
      });
  }

  async #fail(build: Build, error: unknown): Promise<void> {
    const { build_id: id } = build.status;
    const reason = build.over.signal.aborted ? build.over.signal.reason : error;
    const failure = failureOf(reason);
    const { progress: _, ...status } = build.status;
    // Shown once nothing is left to be done for it.
    build.log.add(`failed: ${failure.message}`);
    await build.log.flush();
    if (isOwnFault(reason) && this.#builds.get(id) === build)
      this.#deps.log.error({ build: id, err: error }, "a build failed");
    await become(build, { ...status, state: "failed", failure }).catch((err: unknown) =>
      this.#deps.log.error({ build: id, err }, "the record of a build could not be written"),
    );
  }
}

function newBuild(dir: string, spec: KeptSpec, log: BuildLog): Build {
  return {
    ...{ dir, spec, log },
    status: { build_id: path.basename(dir), state: "queued" },
    credential: undefined,
    image: undefined,
    over: new AbortController(),
    work: Promise.resolve(),
  };
}

const isSame = (one: KeptSpec, other: KeptSpec) => JSON.stringify(one) === JSON.stringify(other);
