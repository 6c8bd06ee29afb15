/** Projects, the parts of an organisation that keys can be bound to (docs/spec/access.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { closed, labels, named, plainText, timestamp } from "./wire-types.ts";

const name = plainText(1, LIMITS.nameChars);

/** Body of `POST /v1/projects`. */
export const ProjectCreate = closed("ProjectCreate", { name, labels: labels.nullish() });
export type ProjectCreate = z.input<typeof ProjectCreate>;

/** Body of `PATCH /v1/projects/{id}`: a field that is left out stays; `labels: null` removes all labels. */
export const ProjectPatch = closed("ProjectPatch", { name: name.optional(), labels: labels.nullish() });
export type ProjectPatch = z.input<typeof ProjectPatch>;

export const ProjectRecord = named("Project", {
  id: z.string(),
  name: z.string(),
  labels: z.record(z.string(), z.string()).optional(),
  created_at: timestamp,
  /** Sessions are attributed to this project when their create names none. It cannot be deleted. */
  is_default: z.boolean(),
});
export type ProjectRecord = z.infer<typeof ProjectRecord>;

export const ProjectList = named("ProjectList", { projects: z.array(ProjectRecord) });
export type ProjectList = z.infer<typeof ProjectList>;
