/** Exports of contract/gateway. */
export * from "./calls.ts";
export * from "./connections.ts";
export * from "./never-ranges.ts";
export * from "./tables.ts";
