export * from "./channel.ts";
export * from "./frames.ts";
export * from "./messages.ts";
