/** Answers of the world's name servers, for one name. */

export interface NameAnswer {
  a?: string[];
  cname?: string;
  /** Seconds; default 60. */
  ttl?: number;
  /** DNS error code, instead of an answer. */
  rcode?: number;
  /** Records of other types, with their data in base64; TXT is given by `txt`. */
  others?: { type: number; data: string }[];
  txt?: string;
  /** Whether no answer is sent. */
  isSilent?: boolean;
  delayMs?: number;
  /** Sends forged answers first: with another id, or to another question. */
  lies?: "id" | "question";
  /** Address in the forged answers. */
  lie?: string;
}

/** Answers by lower-case name, or `*.name` for all names below. A list is used one answer per query, cyclically. */
export type Zone = Record<string, NameAnswer | NameAnswer[]>;

export class ZoneReader {
  #zone: Zone = {};
  readonly #asked = new Map<string, number>();

  set(zone: Zone): void {
    this.#zone = zone;
    this.#asked.clear();
  }

  /** The answer to the next query for a name; advances its list. */
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
