/** Guest ports that can be reached from outside (docs/spec/network.md). */
import { z } from "zod";
import { named, text, wholeNumber } from "./wire-types.ts";

export const PREVIEW_VISIBILITIES = ["token", "public"] as const;
export type PreviewVisibility = (typeof PREVIEW_VISIBILITIES)[number];
export const PREVIEW_AUTHS = ["none", "bearer"] as const;
export type PreviewAuth = (typeof PREVIEW_AUTHS)[number];
export const EXPOSE_RESULTS = ["created", "unchanged", "updated"] as const;
export type ExposeResult = (typeof EXPOSE_RESULTS)[number];

const port = wholeNumber(1, 65_535);

/** Body of `POST /v1/sessions/{id}/expose`. Unknown fields are ignored. */
export const ExposeRequest = named("ExposeRequest", {
  port,
  visibility: z.enum(PREVIEW_VISIBILITIES).nullish(),
  auth: z.enum(PREVIEW_AUTHS).nullish(),
  rotate: z.boolean().nullish(),
  login_url: text().nullish(),
});
export type ExposeRequest = z.infer<typeof ExposeRequest>;

export const Exposed = named("Exposed", {
  session_id: z.string(),
  port: z.int(),
  preview_url: z.string(),
  visibility: z.enum(PREVIEW_VISIBILITIES),
  auth: z.enum(PREVIEW_AUTHS),
  result: z.enum(EXPOSE_RESULTS),
  guest_ip: z
    .string()
    .optional()
    .meta({ description: "the machine's address on its host; not while paused" }),
  ingress_token: z
    .string()
    .optional()
    .meta({ description: "the token in preview_url, with visibility token" }),
  auth_token: z.string().optional().meta({ description: "returned once, by the call that created it" }),
  login_url: z.string().optional(),
  expires_at: z.string().optional().meta({ format: "date-time" }),
});
export type Exposed = z.infer<typeof Exposed>;

/** Body of `POST /v1/sessions/{id}/unexpose`. */
export const UnexposeRequest = named("UnexposeRequest", { port });

export const Unexposed = named("Unexposed", {
  ok: z.boolean().meta({ description: "whether the port was exposed" }),
});
export type Unexposed = z.infer<typeof Unexposed>;

/** An exposed port in the session's record; the URL is without its token. */
export const ExposedPreview = named("ExposedPreview", {
  port: z.int(),
  preview_url: z.string(),
  visibility: z.enum(PREVIEW_VISIBILITIES),
  auth: z.enum(PREVIEW_AUTHS),
});
export type ExposedPreview = z.infer<typeof ExposedPreview>;
