/** Official templates, and those saved from a session (docs/spec/saved-state.md). */
import { z } from "zod";
import { FilePath } from "./files.ts";
import { LIMITS } from "./limits.ts";
import { named, plainText, text, timestamp } from "./wire-types.ts";

export const TEMPLATE_NAME_PATTERN = /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/;

const naming = {
  name: z
    .string()
    .regex(
      TEMPLATE_NAME_PATTERN,
      "must be 1 to 63 of a-z, 0-9, dots and hyphens, beginning and ending with a letter or digit",
    ),
  description: plainText(1, LIMITS.descriptionChars).nullish(),
};

/** Body of `POST /v1/sessions/{id}/templates`. Unknown fields are ignored. */
export const TemplateSave = named("TemplateSave", naming);
export type TemplateSave = z.input<typeof TemplateSave>;

/** Body of `POST /v1/templates`. Unknown fields are ignored. */
export const TemplateImport = named("TemplateImport", {
  /** `[host[:port]/]path[:tag][@sha256:…]`. Control reads it. */
  from_image: text().nullish(),
  /** Instead of `from_image`: the directory of an OCI layout that a session has. */
  from_layout: z
    .object({ session_id: text(), path: FilePath })
    .nullish()
    .meta({ description: "an image that a session has written as an OCI layout; instead of from_image" }),
  ...naming,
});
export type TemplateImport = z.input<typeof TemplateImport>;

/** Official templates that set-up can make: `base` always, the others on a host whose operator asks for them. */
export const OFFICIAL_TEMPLATES = ["base", "data", "build", "image-builder"] as const;
/** Makes one on the service's host. */
export const makeTemplateCommand = (name: string): string => `sudo ./setup --templates ${name}`;

export const TEMPLATE_KINDS = ["official", "user"] as const;
export const TEMPLATE_STATUSES = ["queued", "building", "ready", "failed"] as const;

/** Words that `build_error` begins with, before a colon. */
export const BUILD_ERRORS = [
  "registry_auth",
  "image_not_found",
  "image_invalid",
  "image_too_large",
  "build_timeout",
  "internal",
] as const;
export type BuildError = (typeof BUILD_ERRORS)[number];

const Count = z.object({ done: z.int(), total: z.int() });

/** How far a build is. `layers` and `bytes` are those of the stage. */
export const BuildProgress = named("BuildProgress", {
  stage: z.string().meta({ description: "pull, unpack, hash or bake" }),
  layers: Count.optional(),
  bytes: Count.optional(),
});
export type BuildProgress = z.infer<typeof BuildProgress>;

/** Answer of `GET /v1/templates/{name}/log`: the last lines of the newest build, oldest first. */
export const BuildLines = named("BuildLog", {
  lines: z.array(z.object({ at: timestamp, text: z.string() })),
});
export type BuildLines = z.infer<typeof BuildLines>;

/** Origin of an official template, as far as its publisher named it. */
export const TemplateOrigin = z.object({
  built_at: timestamp.optional(),
  base_image_ref: z
    .string()
    .optional()
    .meta({ description: "what it was built from: distribution and release, such as debian/trixie" }),
  base_image_digest: z
    .string()
    .optional()
    .meta({ description: "digest of the list of that distribution's packages and their versions" }),
  content_hash: z.string().optional().meta({ description: "digest of its disk" }),
  cadence: z
    .string()
    .optional()
    .meta({ description: "how often it is rebuilt; on-demand: when the operator asks for it" }),
  category: z.string().optional().meta({ description: "what it is for; base: a system to build on" }),
});
export type TemplateOrigin = z.infer<typeof TemplateOrigin>;

export const Template = named("Template", {
  name: z.string(),
  kind: z.enum(TEMPLATE_KINDS),
  description: z.string().optional(),
  /** Present on an official template only if its node reports when it was made. */
  created_at: timestamp.optional(),
  /** That of the newest build, if it is newer than all ready versions. */
  status: z.enum(TEMPLATE_STATUSES),
  queue_position: z.int().optional().meta({ description: "1: the next one; only while it is queued" }),
  progress: BuildProgress.optional().meta({ description: "only while it is building" }),
  build_error: z
    .string()
    .optional()
    .meta({ description: `one of ${BUILD_ERRORS.join(", ")}, a colon and a sentence; only on failed` }),
  /** The version that a create without a version uses. */
  version: z.string().optional(),
  /** All ready versions, newest first. */
  versions: z.array(z.string()),
  /** The smallest size that a session from this template can have. */
  size: z.string().optional(),
  source_image: z
    .string()
    .optional()
    .meta({ description: "the image that it is made of, with its digest once that is known" }),
  /** Whether memory was saved, so that sessions start with its processes running. */
  memory: z.boolean(),
  timing: z.record(z.string(), z.int()).optional(),
  /** Fields of official templates only. */
  ...TemplateOrigin.shape,
});
export type Template = z.infer<typeof Template>;

export const TemplateList = named("TemplateList", { templates: z.array(Template) });
export type TemplateList = z.infer<typeof TemplateList>;
