/** Exports of contract/guest. */
export * from "./channel.ts";
export * from "./errors.ts";
export * from "./files.ts";
export * from "./frames.ts";
export { FrameError } from "./framing.ts";
export * from "./lists.ts";
export * from "./messages.ts";
export * from "./processes.ts";
export * from "./settings.ts";
export * from "./terminals.ts";
export * from "./unpack.ts";
