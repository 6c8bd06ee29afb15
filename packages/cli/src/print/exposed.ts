import type { Exposed } from "@vivarium/sdk";
import { renderFields } from "./table.ts";

/** The bearer token is not included: the caller prints it. */
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
