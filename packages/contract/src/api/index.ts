export * from "./errors.ts";
export * from "./exec.ts";
export * from "./ids.ts";
export * from "./limits.ts";
export * from "./runs.ts";
export * from "./service.ts";
export * from "./sessions.ts";
export * from "./states.ts";
