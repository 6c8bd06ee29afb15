/**
 * The load and the results acknowledged to it. A session writes numbered marks to a file. After an answer, facts are
 * recorded per session: marks that must be in the file, and marks that may be.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Api } from "./api.ts";
import type { Random } from "./random.ts";

const WORKERS = 3;
const SESSIONS_MAX = 5;
const COUNTER =
  "(i=0; while :; do i=$((i+1)); echo $i >> /workspace/counter; sleep 0.3; done) > /dev/null 2>&1 & echo ok";

export interface Known {
  id: string;
  /** `unknown`: a request that would change the state was not answered. */
  state: "there" | "gone" | "unknown";
  /** Acknowledged, in order. */
  marks: number[];
  /** Sent, but not acknowledged: may be present. */
  maybe: Set<number>;
  /** A restore without an answer may have rewound the marks: then only their order is certain. */
  isRewound: boolean;
  checkpoints: Kept[];
  hasCounter: boolean;
  isBusy: boolean;
}

/** An acknowledged checkpoint or template, and the marks in it. */
export interface Kept {
  /** The id of a checkpoint, the name of a template. */
  id: string;
  marks: number[];
  maybe: Set<number>;
  hasCounter: boolean;
}

/** A checkpoint or a template whose deletion was requested; without an answer, it may still exist. */
export interface Removed {
  path: string;
  isCertain: boolean;
}

export class Load {
  readonly sessions = new Map<string, Known>();
  /** For each mark, the marks that its session had acknowledged when it was sent: they come before it. */
  readonly earlier = new Map<number, Set<number>>();
  readonly templates: Kept[] = [];
  readonly removed: Removed[] = [];
  /** When the newest acknowledged mark was sent, in the time of `performance.now()`. */
  markedAt = 0;
  readonly #api: Api;
  readonly #random: Random;
  #nextMark = 1;
  #isOn = false;
  #workers: Promise<void>[] = [];

  constructor(api: Api, random: Random) {
    this.#api = api;
    this.#random = random;
  }

  start(): void {
    this.#isOn = true;
    this.#workers = Array.from({ length: WORKERS }, () => this.#work());
  }

  async rest(): Promise<void> {
    this.#isOn = false;
    await Promise.all(this.#workers.splice(0));
  }

  /** Each operation once, in an order that reaches every crash point; repeated after the crash that interrupts it. */
  async each(): Promise<void> {
    const again = async (step: () => Promise<boolean>) => {
      for (let i = 0; i < 40 && !(await step()); i++) await sleep(500);
    };
    await again(async () => (await this.#create()) !== undefined);
    await again(async () => (await this.#create()) !== undefined);
    const session = () => [...this.sessions.values()].find(({ state }) => state === "there");
    const on = (step: (known: Known) => Promise<boolean>) =>
      again(async () => {
        const known = session();
        return known !== undefined && (await step(known));
      });
    await on((known) => this.#mark(known));
    await on((known) => this.#checkpoint(known));
    await on((known) => this.#mark(known));
    await on((known) => this.#pause(known));
    // A start from a paused session: a copy of its saved state.
    await on((known) => this.#checkpoint(known));
    await on((known) => this.#mark(known));
    await on((known) => this.#template(known));
    await on((known) => this.#startCheckpoint(known));
    await on(() => this.#startTemplate());
    await on((known) => this.#fork(known));
    await on((known) => this.#removeCheckpoint(known));
    await on(() => this.#removeTemplate());
    await on((known) => this.#restore(known));
    await on((known) => this.#mark(known));
    await on((known) => this.#pause(known));
    await again(() => this.#saveCredentials());
    await again(() => this.#volume());
    // Only once: while the service comes back from a crash in this operation, one session after the other would be
    // deleted.
    const last = session();
    if (last) await this.#destroy(last);
  }

  /** The life of one session: random operations without kills, so each must succeed. Leaves it to the oracle. */
  async history(steps: number): Promise<void> {
    const known = await this.#create();
    if (!known) throw new Error("a create was refused");
    known.isBusy = true;
    const verbs = [
      ...[this.#mark, this.#mark, this.#pause, this.#resume],
      ...[this.#checkpoint, this.#restore, this.#removeCheckpoint, this.#template, this.#removeTemplate],
    ];
    const paired = [this.#pause, this.#mark, this.#resume, this.#checkpoint];
    let forks = 0;
    for (let step = 0; step < steps; step++) {
      const chosen = this.#random.pick([...verbs, ...(forks === 0 ? [this.#fork] : [])]);
      if (chosen === this.#fork) forks++;
      // Sometimes with a second operation at the same time: one waits for the other, or finds its outcome.
      const beside =
        this.#random.below(4) === 0 && paired.includes(chosen) ? this.#random.pick(paired) : undefined;
      const answers = await Promise.all(
        [chosen, ...(beside ? [beside] : [])].map((verb) => verb.call(this, known)),
      );
      if (answers.includes(false) && !beside)
        throw new Error(`${known.id}: ${chosen.name} failed at step ${step}`);
    }
    known.isBusy = false;
  }

  /** Deletes the results of the histories, once the oracle has seen them. */
  async clear(): Promise<void> {
    for (const known of this.#there) {
      for (const { id } of known.checkpoints.splice(0))
        await this.#api.call("DELETE", `/v1/checkpoints/${id}`);
      await this.#destroy(known);
    }
    for (const { id } of this.templates.splice(0)) await this.#api.call("DELETE", `/v1/templates/${id}`);
  }

  get #there(): Known[] {
    return [...this.sessions.values()].filter(({ state, isBusy }) => state === "there" && !isBusy);
  }

  async #work(): Promise<void> {
    while (this.#isOn) {
      const there = this.#there;
      if (there.length === 0 || (there.length < SESSIONS_MAX && this.#random.below(5) === 0)) {
        if (!(await this.#create())) await sleep(300);
        continue;
      }
      const known = this.#random.pick(there);
      known.isBusy = true;
      const mayGrow =
        [...this.sessions.values()].filter(({ state }) => state === "there").length < SESSIONS_MAX;
      const verbs = [
        ...[this.#mark, this.#mark, this.#mark, this.#pause, this.#pause, this.#restore],
        ...[this.#checkpoint, this.#checkpoint, this.#template, this.#removeCheckpoint, this.#removeTemplate],
        ...(mayGrow
          ? [this.#fork, this.#startCheckpoint, this.#startTemplate]
          : [this.#destroy, this.#destroy]),
      ];
      const isDone = await this.#random.pick(verbs).call(this, known);
      known.isBusy = false;
      if (!isDone) await sleep(200);
    }
  }

  async #create(): Promise<Known | undefined> {
    const { status, body } = await this.#api.call("POST", "/v1/sessions", {});
    if (status !== 200) return undefined;
    const known = this.#add(body.session_id, [], new Set());
    known.isBusy = true;
    const counter = await this.#api.sh(known.id, COUNTER);
    known.hasCounter = counter.status === 200;
    known.isBusy = false;
    return known;
  }

  /** Operations of sessions with credentials alone: a bind, and templates of the disk alone, while it is live and paused. */
  async #saveCredentials(): Promise<boolean> {
    const connection = (name: string) => ({
      name,
      origin: `https://${name}.example.com`,
      authentication: { type: "bearer", secret: "of-the-load" },
      allow: { methods: ["GET"], paths: ["/*"] },
    });
    const ask = async (call: string, path: string, body?: object) => {
      const answer = await this.#api.call(call, path, body);
      return answer.status < 300 ? answer.body : undefined;
    };
    const made = await ask("POST", "/v1/sessions", { connections: [connection("first")] });
    if (!made) return false;
    const path = `/v1/sessions/${made.session_id}`;
    const steps = [
      () => ask("GET", `${path}/connections`),
      () => ask("POST", `${path}/exec`, { command: ["true"] }),
      () => ask("POST", `${path}/connections`, connection("second")),
      () => ask("POST", `${path}/templates`, { name: "credentials" }),
      () => ask("POST", `${path}/pause`),
      () => ask("POST", `${path}/templates`, { name: "credentials" }),
    ];
    let isDone = true;
    for (const step of steps) isDone &&= (await step()) !== undefined;
    // Gone in either case, so that the oracle, which knows nothing of them, finds none of their files.
    const gone = await this.#api.call("DELETE", path);
    const template = await this.#api.call("DELETE", "/v1/templates/credentials");
    return isDone && gone.status < 300 && template.status < 300;
  }

  async #mark(known: Known): Promise<boolean> {
    const mark = this.#nextMark++;
    const sentAt = performance.now();
    known.maybe.add(mark);
    this.earlier.set(mark, new Set(known.marks));
    const { status, body } = await this.#api.sh(
      known.id,
      `echo ${mark} >> /workspace/marks && sync && echo kept`,
    );
    if (status !== 200 || body.exit_code !== 0) return false;
    known.maybe.delete(mark);
    known.marks.push(mark);
    this.markedAt = Math.max(this.markedAt, sentAt);
    return true;
  }

  async #pause(known: Known): Promise<boolean> {
    const { status } = await this.#api.call("POST", `/v1/sessions/${known.id}/pause`);
    return status === 200;
  }

  async #resume(known: Known): Promise<boolean> {
    const { status } = await this.#api.call("POST", `/v1/sessions/${known.id}/resume`);
    return status === 200;
  }

  async #checkpoint(known: Known): Promise<boolean> {
    if (known.isRewound) return true;
    const marks = [...known.marks];
    const { status, body } = await this.#api.call("POST", `/v1/sessions/${known.id}/checkpoints`, {});
    if (status !== 200) return false;
    known.checkpoints.push(keptOf(known, body.checkpoint_id, marks));
    return true;
  }

  async #startCheckpoint(known: Known): Promise<boolean> {
    if (known.checkpoints.length === 0) return true;
    const kept = this.#random.pick(known.checkpoints);
    const { status, body } = await this.#api.call("POST", `/v1/checkpoints/${kept.id}/sessions`, {});
    if (status === 200) this.#addStarted(body.session_id, kept);
    return status === 200;
  }

  async #removeCheckpoint(known: Known): Promise<boolean> {
    return await this.#remove("checkpoints", known.checkpoints);
  }

  async #restore(known: Known): Promise<boolean> {
    if (known.checkpoints.length === 0) return true;
    const checkpoint = this.#random.pick(known.checkpoints);
    const body = { checkpoint_id: checkpoint.id };
    const { status } = await this.#api.call("POST", `/v1/sessions/${known.id}/restore`, body);
    if (status === 200) {
      known.marks = [...checkpoint.marks];
      known.maybe = new Set(checkpoint.maybe);
      known.isRewound = false;
      return true;
    }
    // Refused or unanswered: the mark may be from before or after the restore.
    if (status === 0 || status >= 500) known.isRewound = true;
    return false;
  }

  async #template(known: Known): Promise<boolean> {
    if (known.isRewound) return true;
    const name = `kept-${this.#nextMark++}`;
    const marks = [...known.marks];
    const { status } = await this.#api.call("POST", `/v1/sessions/${known.id}/templates`, { name });
    if (status === 200) this.templates.push(keptOf(known, name, marks));
    return status === 200;
  }

  /** Another worker may delete it meanwhile: then it is refused, or succeeds. */
  async #startTemplate(): Promise<boolean> {
    if (this.templates.length === 0) return true;
    const kept = this.#random.pick(this.templates);
    const { status, body } = await this.#api.call("POST", "/v1/sessions", { template: kept.id });
    if (status === 200) this.#addStarted(body.session_id, kept);
    return status === 200;
  }

  async #removeTemplate(): Promise<boolean> {
    return await this.#remove("templates", this.templates);
  }

  async #remove(kind: string, all: Kept[]): Promise<boolean> {
    if (all.length === 0) return true;
    const kept = this.#random.pick(all);
    all.splice(all.indexOf(kept), 1);
    const path = `/v1/${kind}/${kept.id}`;
    const { status } = await this.#api.call("DELETE", path);
    // It was acknowledged: the oracle must find that it is gone.
    if (status === 404) all.push(kept);
    else this.removed.push({ path, isCertain: status === 204 });
    return status === 204;
  }

  #addStarted(id: string, { marks, maybe, hasCounter }: Kept): void {
    this.#add(id, [...marks], new Set(maybe)).hasCounter = hasCounter;
  }

  async #fork(known: Known): Promise<boolean> {
    if (known.isRewound) return true;
    const marks = [...known.marks];
    const { status, body } = await this.#api.call("POST", `/v1/sessions/${known.id}/fork`, { count: 2 });
    if (status !== 200) return false;
    for (const id of body.children) {
      const child = this.#add(id, [...marks], sentSince(known, marks));
      child.hasCounter = known.hasCounter;
    }
    return true;
  }

  /** The life of a volume and of its session. What was acknowledged on it survives; nothing is left of them. */
  async #volume(): Promise<boolean> {
    const { body: before } = await this.#api.call("GET", "/v1/volumes");
    for (const { id, session_id: holder } of before?.volumes ?? []) {
      if (holder) await this.#api.call("DELETE", `/v1/sessions/${holder}`);
      await this.#api.call("DELETE", `/v1/volumes/${id}`);
    }
    const made = await this.#api.call("POST", "/v1/volumes");
    if (made.status !== 201) return false;
    const path = `/v1/volumes/${made.body.id}`;
    if ((await this.#api.call("PATCH", path, { size_gb: 2 })).status !== 200) return false;
    const created = await this.#api.call("POST", "/v1/sessions", { volume_id: made.body.id });
    if (created.status !== 200) return false;
    const id = created.body.session_id;
    const written = await this.#api.sh(id, "echo kept > /volume/mark && sync /volume/mark && echo kept");
    if (written.body?.exit_code !== 0) return false;
    if ((await this.#api.call("POST", `/v1/sessions/${id}/pause`)).status !== 200) return false;
    const read = await this.#api.sh(id, "cat /volume/mark");
    if (read.status === 200 && read.body.stdout !== "kept\n")
      throw new Error(`${made.body.id} lost what was acknowledged: ${JSON.stringify(read.body)}`);
    if (read.status !== 200) return false;
    if ((await this.#api.call("DELETE", `/v1/sessions/${id}`)).status !== 204) return false;
    return (await this.#api.call("DELETE", path)).status === 204;
  }

  async #destroy(known: Known): Promise<boolean> {
    const { status } = await this.#api.call("DELETE", `/v1/sessions/${known.id}`);
    if (status === 204 || status === 404) known.state = "gone";
    else known.state = "unknown";
    return status === 204;
  }

  #add(id: string, marks: number[], maybe: Set<number>): Known {
    const known: Known = {
      id,
      state: "there",
      marks,
      maybe,
      isRewound: false,
      checkpoints: [],
      hasCounter: false,
      isBusy: false,
    };
    this.sessions.set(id, known);
    return known;
  }
}

function keptOf(known: Known, id: string, marks: number[]): Kept {
  return { id, marks, maybe: sentSince(known, marks), hasCounter: known.hasCounter };
}

/** Marks sent while a copy was being made may be in it, also if they were acknowledged before the copy was. */
function sentSince({ marks, maybe }: Known, before: number[]): Set<number> {
  return new Set([...maybe, ...marks.filter((mark) => !before.includes(mark))]);
}
