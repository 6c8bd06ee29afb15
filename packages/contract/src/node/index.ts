/** Exports of contract/node. */
export * from "./archives.ts";
export * from "./builds.ts";
export * from "./calls.ts";
export * from "./host-settings.ts";
export * from "./machines-unit.ts";
export * from "./network.ts";
export * from "./opening.ts";
export * from "./refusals.ts";
export * from "./volumes.ts";
