/**
 * The cookie that replaces a token after its first use: valid for one host, one version of the route and at most a day.
 * The gateway keeps no state about it. A new version of the route ends it.
 */
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { equalBytes, macOf } from "./secrets.ts";

const LIFE_S = 24 * 3600;
/** On plain HTTP, pages of other previews can set cookies of this name as well: one valid cookie among a few is enough. */
const MAX_TRIED = 8;
const OURS = /^(viv_pv$|__(host|secure)-viv_)/i;

interface Subject {
  route: Pick<PreviewRoute, "version" | "cookie_key">;
  hostName: string;
}

export const gateCookieName = (secure: boolean): string => (secure ? "__Host-viv_pv" : "viv_pv");

/** Whether a guest may not set, and must not see, a cookie of this name. */
export const isGateCookieName = (name: string): boolean => OURS.test(name);

export function mintGateCookie(subject: Subject, secure: boolean, nowMs: number): string {
  const expires = Math.floor(nowMs / 1000) + LIFE_S;
  const value = `${expires}.${seal(subject, expires).toString("base64url")}`;
  const attributes = `Path=/; Max-Age=${LIFE_S}; HttpOnly; SameSite=Lax${secure ? "; Secure" : ""}`;
  return `${gateCookieName(secure)}=${value}; ${attributes}`;
}

export function hasGateCookie(subject: Subject, header: string, secure: boolean, nowMs: number): boolean {
  const name = gateCookieName(secure);
  const values = cookiesOf(header)
    .filter((cookie) => cookie.name === name)
    .slice(0, MAX_TRIED);
  return values.filter(({ value }) => isGood(subject, value, nowMs)).length > 0;
}

/** The Cookie header without our cookies; undefined when nothing else is in it. */
export function withoutGateCookies(header: string): string | undefined {
  const others = header.split(";").filter((part) => !isGateCookieName(nameOf(part)));
  return others.length === 0 ? undefined : others.join(";").trim();
}

function isGood(subject: Subject, value: string, nowMs: number): boolean {
  const [, digits = "0", mac = ""] = /^([0-9]{1,12})\.([A-Za-z0-9_-]{43})$/.exec(value) ?? [];
  const expires = Number(digits);
  const isSealed = equalBytes(seal(subject, expires), Buffer.from(mac, "base64url"));
  return isSealed && expires > nowMs / 1000 && expires <= nowMs / 1000 + LIFE_S;
}

function seal({ route, hostName }: Subject, expires: number): Buffer {
  return macOf(route.cookie_key, `${hostName}\n${route.version}\n${expires}`);
}

function cookiesOf(header: string): { name: string; value: string }[] {
  return header.split(";").map((part) => ({
    name: nameOf(part),
    value: part.slice(part.indexOf("=") + 1).trim(),
  }));
}

function nameOf(part: string): string {
  const end = part.indexOf("=");
  return (end === -1 ? part : part.slice(0, end)).trim();
}
