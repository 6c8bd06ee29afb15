/** Converts lists of a guest between one object, as tests use them, and frames of contract/guest. */
import { encodeList, FrameDecoder, ListReader, type ListShape } from "@vivarium/contract/guest";

const LISTED: Readonly<Record<string, string>> = {
  "GET files/list": "entries",
  "GET files/find": "paths",
  "GET files/match": "files",
  "GET files/grep": "matches",
  "GET processes": "processes",
};

/** Encodes the answer of a call such as `"GET files/list"`; undefined if that call does not return a list. */
export function listFrames(call: string, answer: object): Buffer | undefined {
  const key = LISTED[call];
  if (key === undefined) return undefined;
  const { [key]: items, ...end } = answer as Record<string, unknown>;
  return encodeList(items as unknown[], end);
}

export function readList<Item, End>(
  shape: ListShape<Item, End>,
  frames: Buffer,
): { items: Item[]; end: End } {
  const reader = new ListReader(shape);
  const items = [...new FrameDecoder().push(frames)].flatMap((frame) => [...reader.read(frame)]);
  if (reader.end === undefined) throw new Error("the list has no end");
  return { items, end: reader.end };
}
