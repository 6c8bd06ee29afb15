export * from "./calls.ts";
export * from "./tables.ts";
