/** Renders scoped tokens. */
import type { Token, TokenCreated } from "@vivarium/sdk";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

const SHOWN_CHARS = 12;

export function renderTokens(tokens: Token[], now: Date): string {
  const age = (at: string) => formatAge(now.getTime() - Date.parse(at));
  const rows = tokens.map((token) => [
    token.hash.slice(0, SHOWN_CHARS),
    token.capabilities.join(" "),
    age(token.created_at),
    token.last_used_at ? age(token.last_used_at) : "never",
    token.expires_at,
  ]);
  return renderTable(["HASH", "MAY", "AGE", "USED", "EXPIRES"], rows);
}

export function renderMinted(token: TokenCreated): string {
  return renderFields([
    ["token", token.token],
    ["hash", token.hash],
    ["may", token.capabilities.join(" ")],
    ["expires", token.expires_at],
  ]);
}
