export * from "./calls.ts";
export * from "./opening.ts";
export * from "./refusals.ts";
