import type { Exposed } from "@vivarium/sdk";
import { renderFields } from "./table.ts";

/** Renders an exposed port with its URL; without the bearer token, which the caller prints. */
export function renderExposed(exposed: Exposed): string {
  return renderFields([
    ["url", exposed.preview_url],
    ["open to", exposed.visibility === "public" ? "everybody" : "who has the token in the URL"],
    ["auth", exposed.auth],
    ["login url", exposed.login_url],
    ["until", exposed.expires_at],
    ["result", exposed.result],
  ]);
}
