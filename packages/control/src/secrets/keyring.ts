/** The key-encryption keys that this process has loaded. */
import { removeCopies } from "../access/make-once.ts";
import { ApiError } from "../errors/api-error.ts";
import { addKek, type KekSource, makeKekFile, readKeks } from "./kek-source.ts";
import type { Kek } from "./kek-text.ts";

/** The source is read again for the same missing key no more often than this. */
const LOOK_PAUSE_MS = 1_000;

export class Keyring {
  readonly #source: KekSource | undefined;
  #keks: readonly Kek[];
  /** Current key of the last rotation, or of the start. */
  #rotatedTo: string | undefined;
  #reading: Promise<void> = Promise.resolve();
  #looking: Promise<void> | undefined;
  /** When a key was looked for and not found, by its id. */
  readonly #missedAt = new Map<string, number>();

  private constructor(source: KekSource | undefined, keks: readonly Kek[]) {
    this.#source = source;
    this.#keks = keks;
    this.#rotatedTo = this.current?.id;
  }

  /** A ring without keys: nothing can be sealed. */
  static empty(): Keyring {
    return new Keyring(undefined, []);
  }

  /** `made`: the file was made by this call, which happens only if `mayMake`. */
  static async load(
    source: KekSource | undefined,
    mayMake = true,
  ): Promise<{ keyring: Keyring; made?: string }> {
    if (!source) return { keyring: Keyring.empty() };
    const keks = await readKeks(source);
    if (keks) {
      if (source.kind === "file" && source.mayMake) await removeCopies(source.file);
      return { keyring: new Keyring(source, keks) };
    }
    if (!mayMake) return { keyring: new Keyring(source, []) };
    const { file } = source as KekSource & { kind: "file" };
    return { keyring: new Keyring(source, await makeKekFile(file)), made: file };
  }

  /** The key that seals; undefined if this service has none. */
  get current(): Kek | undefined {
    return this.#keks.at(-1);
  }

  get ids(): string[] {
    return this.#keks.map(({ id }) => id);
  }

  /** Whether a rotation adds a key to the file. Otherwise the operator has added one. */
  get makesKeys(): boolean {
    return this.#source?.kind === "file" && this.#source.mayMake;
  }

  /** The key of this id. One that is not loaded may have been added since the source was read. */
  async require(id: string): Promise<Kek> {
    const known = this.#find(id);
    if (known) return known;
    let cause: unknown;
    const added = await this.#look(id).catch((error: unknown) => {
      cause = error;
    });
    if (added) return added;
    const message = `the key-encryption key ${id} is not loaded on this server`;
    throw new ApiError("unavailable", message, { cause, retryAfterS: null });
  }

  /**
   * Reads the source again, after the reads before it: an older one must not replace what a newer one found. A source that
   * cannot be read leaves the ring as it is, and throws.
   */
  async reload(): Promise<void> {
    const source = this.#source;
    if (!source) return;
    const read = async () => this.#take((await readKeks(source)) ?? []);
    this.#reading = this.#reading.then(read, read);
    await this.#reading;
  }

  /** Takes over a key that another process has added to the file. */
  async refresh(): Promise<void> {
    if (this.#source?.kind === "file") await this.reload();
  }

  /**
   * Adds a new key to the file, or takes over the operator's. Whether there is a new current key since the last rotation,
   * which another part may have taken over before.
   */
  async rotate(): Promise<boolean> {
    if (this.#source?.kind === "file" && this.#source.mayMake) await addKek(this.#source.file);
    await this.reload();
    const before = this.#rotatedTo;
    this.#rotatedTo = this.current?.id;
    return this.#rotatedTo !== before;
  }

  /**
   * A key that is gone from the source still opens until the process ends: rows may need it. Another key of a known name
   * is refused: what it seals would not open beside what is sealed already.
   */
  #take(keks: readonly Kek[]): void {
    for (const { id, key } of keks) {
      if (this.#find(id)?.key.equals(key) ?? true) continue;
      throw new ApiError(
        "conflict",
        `the source of the key-encryption keys has another key called ${id} than the one in use: put the old one back, and add the new one after it with a name of its own`,
      );
    }
    const gone = this.#keks.filter(({ id }) => !keks.some((kek) => kek.id === id));
    this.#keks = [...gone, ...keks];
  }

  #find(id: string): Kek | undefined {
    return this.#keks.find((kek) => kek.id === id);
  }

  /** Callers that look at the same time share one read. */
  async #look(id: string): Promise<Kek | undefined> {
    const missedAt = this.#missedAt.get(id);
    if (missedAt !== undefined && performance.now() - missedAt < LOOK_PAUSE_MS) return undefined;
    this.#looking ??= this.reload().finally(() => {
      this.#looking = undefined;
    });
    try {
      await this.#looking;
    } finally {
      if (this.#find(id)) this.#missedAt.delete(id);
      else this.#missedAt.set(id, performance.now());
    }
    return this.#find(id);
  }
}
