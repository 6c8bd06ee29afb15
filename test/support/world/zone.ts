/** Answers of the world's name servers. */

export interface NameAnswer {
  a?: string[];
  cname?: string;
  /** Seconds. Default: 60. */
  ttl?: number;
  /** Code of a failure instead of an answer. */
  rcode?: number;
  /** Records of other types: by number, with their data in base64; TXT by its text. */
  others?: { type: number; data: string }[];
  txt?: string;
  /** Sends no answer. */
  isSilent?: boolean;
  delayMs?: number;
  /** Sends false answers first: with another id, to another question. */
  lies?: "id" | "question";
  /** With `lies`: the content of the false answers. */
  lie?: string;
}

/** By name in lower case, or `*.name` for all below. A list is used question by question, cyclically. */
export type Zone = Record<string, NameAnswer | NameAnswer[]>;

export class ZoneReader {
  #zone: Zone = {};
  readonly #asked = new Map<string, number>();

  set(zone: Zone): void {
    this.#zone = zone;
    this.#asked.clear();
  }

  /** Counts as one question. */
  next(name: string): NameAnswer | undefined {
    const key = this.#keyOf(name);
    const found = key === undefined ? undefined : this.#zone[key];
    if (!Array.isArray(found) || key === undefined) return found as NameAnswer | undefined;
    const turn = this.#asked.get(key) ?? 0;
    this.#asked.set(key, turn + 1);
    return found[turn % found.length];
  }

  #keyOf(name: string): string | undefined {
    if (Object.hasOwn(this.#zone, name)) return name;
    const labels = name.split(".");
    return labels.map((_, at) => `*.${labels.slice(at + 1).join(".")}`).find((key) => key in this.#zone);
  }
}
