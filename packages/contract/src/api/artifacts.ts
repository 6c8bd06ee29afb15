/** Artifacts: files captured out of a session (docs/spec/artifacts.md). */
import { z } from "zod";
import { FilePath } from "./files.ts";
import { LIMITS } from "./limits.ts";
import { named, timestamp, wholeNumber } from "./wire-types.ts";

export const ARTIFACT_STATUSES = ["pending", "ready", "failed"] as const;
export type ArtifactStatus = (typeof ARTIFACT_STATUSES)[number];

/** Paths or globs, absolute below /workspace or relative to it. A path of a directory stands for all below it. */
export const ArtifactPaths = z
  .array(FilePath)
  .min(1, "must hold at least one path")
  .max(LIMITS.artifactPaths, `must hold at most ${LIMITS.artifactPaths} paths`);

const destination = z.strictObject({
  type: z.literal("hosted", "must be hosted: this service has no other"),
});

/** Body of `POST /v1/sessions/{id}/artifacts`. Unknown fields are ignored. */
export const ArtifactCapture = named("ArtifactCapture", {
  paths: ArtifactPaths,
  destination: destination.nullish(),
});
export type ArtifactCapture = z.input<typeof ArtifactCapture>;

/** Field `artifacts` of a create: what is captured when the session is destroyed. */
export const ArtifactsOfCreate = z.strictObject({
  paths: ArtifactPaths,
  destination: destination.optional(),
});

export const ArtifactFile = named("ArtifactFile", {
  path: z.string().meta({ description: "relative to /workspace" }),
  url: z
    .string()
    .optional()
    .meta({ description: "a download without a credential, for an hour from this answer" }),
  size_bytes: z.int(),
  content_type: z.string().optional(),
});

/** The manifest of one capture. `files` are there once it is `ready`, `error` once it has `failed`. */
export const Artifact = named("Artifact", {
  id: z.string(),
  status: z.enum(ARTIFACT_STATUSES),
  session_id: z.string(),
  captured_at: timestamp,
  expires_at: timestamp,
  files: z.array(ArtifactFile).optional(),
  error: z.string().optional(),
});
export type Artifact = z.infer<typeof Artifact>;

export const ArtifactList = named("ArtifactList", { artifacts: z.array(Artifact) });
export type ArtifactList = z.infer<typeof ArtifactList>;

/** Body of `POST /v1/artifacts/{aid}/extend`. */
export const ArtifactExtension = named("ArtifactExtension", {
  ttl_days: wholeNumber(1, 1_000_000),
});
export type ArtifactExtension = z.input<typeof ArtifactExtension>;
