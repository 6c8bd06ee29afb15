/**
 * Lists of a guest, agent → node → control, as frames (frames.ts). `items` are lines of JSON, one item each, cut into
 * frames wherever a frame is full. `eof` carries the rest. An item is parsed and checked as soon as it is whole, so
 * that node and control have only one in memory, however long the list is.
 */
import { z } from "zod";
import { LIMITS } from "../api/limits.ts";
import { FileList, FindResult, GrepMatch, GrepResult, MatchedFile, MatchResult } from "./files.ts";
import { encodeFrame, FRAME, type Frame } from "./frames.ts";
import { GuestProcess } from "./processes.ts";

export interface ListShape<Item, End> {
  item: z.ZodType<Item>;
  end: z.ZodType<End>;
  mostItems: number;
  mostBytes: number;
}

const MIB = 1024 * 1024;
/** Most bytes of a list of files or matches. 100,000 long escaped names would need more, but no real folder has them. */
const FILES_BYTES = 32 * MIB;
const name = FileList.shape.entries.element;

export const LISTS = {
  entries: shape(name, FileList.omit({ entries: true }), 100_000, FILES_BYTES),
  paths: shape(name, FindResult.omit({ paths: true }), 10_000, FILES_BYTES),
  files: shape(MatchedFile, MatchResult.omit({ files: true }), 10_001, FILES_BYTES),
  /** More than 100,000 matches do not fit into LIMITS.grepAnswerBytes. */
  matches: shape(GrepMatch, GrepResult.omit({ matches: true }), 100_000, FILES_BYTES),
  processes: shape(GuestProcess, z.object({}), LIMITS.processEntries, 16 * MIB),
} as const;

function shape<Item, End>(
  item: z.ZodType<Item>,
  end: z.ZodType<End>,
  mostItems: number,
  mostBytes: number,
): ListShape<Item, End> {
  return { item, end, mostItems, mostBytes };
}

/** Longest item in bytes. A process's command may fill a request; a match with its context, all escaped, half of one. */
export const ITEM_BYTES = MIB + 64 * 1024;
/** Payload of each frame that agents fill. */
const PAYLOAD_BYTES = 32 * 1024;
/** Bytes that a smaller frame counts as: each frame costs readers work, and agents fill all frames but the last. */
const LEAST_FRAME_BYTES = 4 * 1024;

export function encodeList(items: readonly unknown[], end: unknown): Buffer {
  const lines = Buffer.from(items.map((item) => `${JSON.stringify(item)}\n`).join(""));
  const frames: Buffer[] = [];
  for (let at = 0; at < lines.length; at += PAYLOAD_BYTES)
    frames.push(encodeFrame(FRAME.items, lines.subarray(at, at + PAYLOAD_BYTES)));
  return Buffer.concat([...frames, encodeFrame(FRAME.eof, JSON.stringify(end))]);
}

/** The agent's list does not match its ListShape. */
export class ListError extends Error {}

/** Decodes the frames of a list into its items. */
export class ListReader<Item, End> {
  readonly #shape: ListShape<Item, End>;
  #line: Buffer[] = [];
  #lineBytes = 0;
  #bytes = 0;
  #items = 0;
  end: End | undefined;

  constructor(shape: ListShape<Item, End>) {
    this.#shape = shape;
  }

  /** Yields the items that this frame completes; read them all before the next frame. Throws ListError. */
  *read({ type, payload }: Frame): Generator<Item, void> {
    if (type === FRAME.eof) this.end = this.#readEnd(payload);
    else if (type !== FRAME.items) throw new ListError(`a list has no frame of type ${type}`);
    else yield* this.#readItems(payload);
  }

  *#readItems(payload: Buffer): Generator<Item, void> {
    this.#bytes += Math.max(payload.length, LEAST_FRAME_BYTES);
    if (this.#bytes > this.#shape.mostBytes) throw new ListError("the list is longer than it may be");
    for (let at = 0; at < payload.length; ) {
      const newline = payload.indexOf(0x0a, at);
      if (newline < 0) {
        // Copied, because the slice would keep the whole chunk in memory.
        this.#keep(Buffer.from(payload.subarray(at)));
        return;
      }
      this.#keep(payload.subarray(at, newline));
      yield this.#takeItem();
      at = newline + 1;
    }
  }

  #keep(piece: Buffer): void {
    this.#lineBytes += piece.length;
    if (this.#lineBytes > ITEM_BYTES) throw new ListError("an item of the list is longer than it may be");
    if (piece.length > 0) this.#line.push(piece);
  }

  #takeItem(): Item {
    this.#items += 1;
    if (this.#items > this.#shape.mostItems) throw new ListError("the list has more items than it may");
    const [first, ...more] = this.#line;
    const line = first && more.length === 0 ? first : Buffer.concat(this.#line);
    this.#line = [];
    this.#lineBytes = 0;
    return fit(this.#shape.item, line);
  }

  #readEnd(payload: Buffer): End {
    if (this.#lineBytes > 0) throw new ListError("the list ends within an item");
    return fit(this.#shape.end, payload);
  }
}

function fit<T>(schema: z.ZodType<T>, text: Buffer): T {
  try {
    return schema.parse(JSON.parse(text.toString("utf8")));
  } catch (cause) {
    throw new ListError("a part of the list is not what its contract says", { cause });
  }
}
