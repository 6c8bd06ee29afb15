/** Work on a service while it is updated, and what of it was lost: sessions live, paused and attached, creates and runs. */

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Terminal } from "@vivarium/sdk";
import { longFetch } from "@vivarium/sdk/long-fetch";
import { DATA_DIR, expectEqual, ownClient, shell } from "./inside.ts";

const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n >/dev/shm/count; sleep 0.5; done) >/dev/null 2>&1 &";
const NOISE = "head -c 262144 /dev/urandom >/dev/shm/noise; sha256sum </dev/shm/noise";
const SUM = "sha256sum </dev/shm/noise";
const SETTLES_WITHIN_MS = 300_000;
const SHOWS_WITHIN_MS = 120_000;
const POLL_MS = 200;
/** Between two runs, and between two creates: the update must get on beside them on a host that is emulated. */
const PAUSE_MS = 2_000;
/** Sessions that the load keeps, the oldest of which it deletes for the next one. */
const KEPT = 2;

interface Kept {
  id: string;
  sum: string;
}

export interface Figures {
  runs: number;
  /** Runs and creates without an answer, or refused: the service was away. */
  cut: number;
  creates: number;
  longestOutageMs: number;
}

export class UpdateLoad {
  readonly #client: Client = ownClient();
  readonly #hasty: Client = hastyClient();
  readonly #over = new AbortController();
  readonly #figures: Figures = { runs: 0, cut: 0, creates: 0, longestOutageMs: 0 };
  /** Sessions whose creation was acknowledged, and whose end was not asked for. */
  readonly #acknowledged: string[] = [];
  readonly #undeleted: string[] = [];
  #loops: Promise<unknown> = Promise.resolve();
  #live: Kept | undefined;
  #paused: Kept | undefined;
  #attached: (Kept & { terminal: Terminal; shellPid: string }) | undefined;
  #count = 0;

  async start(): Promise<void> {
    await this.#untilHealthy();
    this.#live = await this.#makeSession();
    await shell(this.#client.session(this.#live.id), COUNTER);
    this.#paused = await this.#makeSession();
    await this.#client.sessions.pause(this.#paused.id);
    const attached = await this.#makeSession({ on_pty_detach: "keep_live" });
    const terminal = await this.#openTerminal(attached.id);
    const shown = await typeInto(terminal, "mine=there; echo pid-$$-\n", /pid-(\d+)-/);
    this.#attached = { ...attached, terminal, shellPid: shown };
    this.#loops = Promise.all([this.#runForEver(), this.#createForEver(), this.#watchHealth()]);
  }

  /** Throws if anything was lost that had been acknowledged. */
  async check(): Promise<void> {
    const [live, paused, attached] = [this.#live, this.#paused, this.#attached];
    if (!live || !paused || !attached) throw new Error("the load was not started");
    await this.#untilHealthy();
    const count = Number(await this.#in(live.id, "cat /dev/shm/count"));
    if (!(count > this.#count)) throw new Error(`the counter is ${count} after ${this.#count}`);
    this.#count = count;
    expectEqual((await this.#in(live.id, SUM)).trim(), live.sum, "the memory of the live session");
    expectEqual((await this.#client.sessions.get(paused.id)).state, "paused", "the paused session");
    expectEqual((await this.#in(paused.id, SUM)).trim(), paused.sum, "the memory of the paused session");
    await this.#client.sessions.pause(paused.id);
    await attached.terminal.close();
    attached.terminal = await this.#openTerminal(attached.id);
    const pid = await typeInto(attached.terminal, "echo still-$mine-$$-\n", /still-there-(\d+)-/);
    expectEqual(pid, attached.shellPid, "the shell of the attached session");
    for (const id of [...this.#acknowledged]) await this.#expectThere(id);
  }

  get figures(): Figures {
    return { ...this.#figures };
  }

  async stop(): Promise<void> {
    this.#over.abort();
    await this.#loops;
    await this.#attached?.terminal.close();
    const all = [this.#live, this.#paused, this.#attached].flatMap((one) => (one ? [one.id] : []));
    for (const id of [...all, ...this.#acknowledged, ...this.#undeleted])
      await this.#client.sessions.delete(id);
  }

  async #makeSession(request: { on_pty_detach?: "keep_live" } = {}): Promise<Kept> {
    const { session_id: id } = await this.#client.sessions.create(request);
    await this.#client.sessions.waitUntilLive(id);
    return { id, sum: (await this.#in(id, NOISE)).trim() };
  }

  #in(id: string, script: string): Promise<string> {
    return shell(this.#client.session(id), script);
  }

  #openTerminal(id: string): Promise<Terminal> {
    return this.#client.session(id).terminal({ terminal: "main" });
  }

  /** It may have been deleted by the load between the two looks. */
  async #expectThere(id: string): Promise<void> {
    const state = await this.#client.sessions.get(id).then(
      (session) => session.state,
      (error: Error) => error.message,
    );
    if (state === "live" || state === "creating" || !this.#acknowledged.includes(id)) return;
    throw new Error(`session ${id} was acknowledged, and is ${state}`);
  }

  async #runForEver(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const result = await this.#hasty
        .run({ language: "python", code: "print(6 * 7)" })
        .catch(() => undefined);
      if (result) expectEqual(result.stdout, "42\n", "the output of a run");
      this.#figures[result ? "runs" : "cut"]++;
      await sleep(result ? PAUSE_MS : POLL_MS);
    }
  }

  async #createForEver(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const made = await this.#hasty.sessions.create().catch(() => undefined);
      this.#figures[made ? "creates" : "cut"]++;
      if (made) {
        this.#acknowledged.push(made.session_id);
        await this.#client.sessions.waitUntilLive(made.session_id).catch(() => undefined);
      }
      if (this.#acknowledged.length > KEPT) await this.#deleteOldest();
      await sleep(made ? PAUSE_MS : POLL_MS);
    }
  }

  /** A deletion without an answer may have been carried out, so the session counts no more. */
  async #deleteOldest(): Promise<void> {
    const id = this.#acknowledged.shift();
    if (id === undefined) return;
    while (!this.#over.signal.aborted) {
      const isDone = await this.#client.sessions.delete(id).then(
        () => true,
        () => false,
      );
      if (isDone) return;
      await sleep(POLL_MS);
    }
    this.#undeleted.push(id);
  }

  async #watchHealth(): Promise<void> {
    let answeredAt = performance.now();
    while (!this.#over.signal.aborted) {
      const isThere = await this.#hasty.health({ signal: AbortSignal.timeout(5_000) }).then(
        () => true,
        () => false,
      );
      const now = performance.now();
      const gap = Math.round(now - answeredAt);
      if (isThere) {
        this.#figures.longestOutageMs = Math.max(this.#figures.longestOutageMs, gap);
        answeredAt = now;
      }
      await sleep(POLL_MS);
    }
  }

  async #untilHealthy(): Promise<void> {
    const deadline = Date.now() + SETTLES_WITHIN_MS;
    while (!(await this.#hasty.health().catch(() => undefined))) {
      if (Date.now() > deadline) throw new Error("the service does not answer");
      await sleep(POLL_MS);
    }
  }
}

/** A client that repeats no call: what the service does not answer is counted. */
function hastyClient(): Client {
  const apiKey = readFileSync(`${DATA_DIR}/control/bootstrap.key`, "utf8").trim();
  return new Client({ apiKey, fetch: longFetch, retries: 0 });
}

/** Returns the first group of the pattern in what the terminal shows then. */
async function typeInto(terminal: Terminal, text: string, wanted: RegExp): Promise<string> {
  await terminal.write(text);
  let shown = "";
  const late = setTimeout(() => void terminal.close(), SHOWS_WITHIN_MS);
  try {
    for await (const bytes of terminal) {
      shown += Buffer.from(bytes).toString();
      const [, found] = wanted.exec(shown) ?? [];
      if (found !== undefined) return found;
    }
  } catch {
    // It was closed: what it showed until then is in the error below.
  } finally {
    clearTimeout(late);
  }
  throw new Error(`the terminal does not show ${wanted}: ${JSON.stringify(shown.slice(-300))}`);
}
