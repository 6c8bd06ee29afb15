/** Runs of code, each by one call in a session of its own (docs/spec/exec.md). */
import { z } from "zod";
import { outputFields } from "./exec.ts";
import { LIMITS, SIZE_NAMES } from "./limits.ts";
import { COMMAND_CAPTURES } from "./sessions.ts";
import { durationMs, named, text } from "./wire-types.ts";

export const LANGUAGES = ["python", "node", "bun"] as const;
export type Language = (typeof LANGUAGES)[number];

/** Body of `POST /v1/sessions/exec` (docs/spec/exec.md). */
export const RunRequest = named("RunRequest", {
  language: z.enum(LANGUAGES),
  /** Written to a file, so it may contain NUL. */
  code: z.string().refine((value) => value.isWellFormed(), "must be valid Unicode"),
  dependencies: z
    .array(
      text()
        .min(1, `each must be 1 to ${LIMITS.runDependencyChars} characters`)
        .max(LIMITS.runDependencyChars, `each must be 1 to ${LIMITS.runDependencyChars} characters`)
        .refine((value) => !value.startsWith("-"), 'must not start with "-": options are not accepted'),
    )
    .max(LIMITS.runDependencies, `must hold at most ${LIMITS.runDependencies} packages`)
    .nullish(),
  volume_id: text().nullish(),
  timeout_ms: durationMs(LIMITS.execTimeoutMaxMs),
  size: z.enum(SIZE_NAMES as [string, ...string[]]).nullish(),
  template: text().nullish(),
  no_sudo: z.boolean().optional(),
  project_id: text().nullish(),
  command_capture: z.enum(COMMAND_CAPTURES).nullish(),
});
export type RunRequest = z.input<typeof RunRequest>;

/** `install`: ended while installing packages; `run`: stopped by the time limit; `done`: the code ended by itself. */
export const RUN_PHASES = ["install", "run", "done"] as const;
export type RunPhase = (typeof RUN_PHASES)[number];

export const RunResult = named("RunResult", {
  session_id: z.string(),
  ...outputFields,
  phase: z.enum(RUN_PHASES),
  install_ms: z.int().optional(),
});
export type RunResult = z.infer<typeof RunResult>;
