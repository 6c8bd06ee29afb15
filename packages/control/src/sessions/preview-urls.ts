/** Builds the URLs of previews. */
import type { ExposedPreview } from "@vivarium/contract/api";
import type { SessionRow } from "./store.ts";

/** The address under which visitors reach previews. */
export interface PreviewSite {
  isSecure: boolean;
  /** `localhost` on a local installation. */
  domain: string;
  /** The port that visitors use. */
  port: number;
}

export interface PreviewUrls {
  previewSite: PreviewSite;
}

/** The URL of a preview without its token, so it is safe to show. */
export function previewUrl(
  { isSecure, domain, port: at }: PreviewSite,
  sessionId: string,
  port: number,
): string {
  const isUsual = at === (isSecure ? 443 : 80);
  return `${isSecure ? "https" : "http"}://${port}-${sessionId}.${domain}${isUsual ? "" : `:${at}`}`;
}

export function withToken(url: string, token: string): string {
  return `${url}/?t=${token}`;
}

export function exposedPreviews({ previewSite }: PreviewUrls, { id, exposed }: SessionRow): ExposedPreview[] {
  return (exposed ?? []).map(({ port, visibility, auth }) => ({
    port,
    preview_url: previewUrl(previewSite, id, port),
    visibility,
    auth,
  }));
}
