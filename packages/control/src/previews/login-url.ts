import { LIMITS } from "@vivarium/contract/api";
import { invalidField } from "../http/validation.ts";

const LOCAL = /^(localhost|127\.0\.0\.1|([a-z0-9_-]+\.)+localhost)$/;
const WORDS =
  "must be an absolute https:// URL without user and fragment (http:// for localhost, *.localhost and 127.0.0.1 only)";

/** Checks a login URL and returns it unchanged, because visitors are redirected to it. */
export function checkLoginUrl(text: string | null | undefined): string | null {
  if (text == null) return null;
  if (text.length > LIMITS.loginUrlChars)
    throw invalidField("login_url", `must be at most ${LIMITS.loginUrlChars} characters`);
  // The text must be a URL as it is: nothing is trimmed, and it cannot break out of a header.
  if (!/^https?:\/\/[!-~]+$/i.test(text) || text.includes("#") || text.includes("\\") || !URL.canParse(text))
    throw invalidField("login_url", WORDS, text);
  const url = new URL(text);
  const isPlain = url.protocol === "http:" && !LOCAL.test(url.hostname);
  const authority = /^https?:\/\/([^/?]*)/i.exec(text)?.[1] ?? "";
  if (isPlain || authority.includes("@") || authority === "") throw invalidField("login_url", WORDS, text);
  return text;
}
