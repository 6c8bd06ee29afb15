/**
 * Makes and checks the cookie that replaces a token after its first use. It is valid for one host, one version of the
 * route and at most a day. A MAC proves it, so the gateway keeps no state.
 */
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { equalBytes, macOf } from "./secrets.ts";

const LIFE_S = 24 * 3600;
/** Cookies that are checked. On plain HTTP other previews' pages can add some of this name: one valid is enough. */
const MAX_TRIED = 8;
const OURS = /^(viv_pv$|__(host|secure)-viv_)/i;

interface Subject {
  route: Pick<PreviewRoute, "version" | "cookie_key">;
  hostName: string;
}

export const gateCookieName = (secure: boolean): string => (secure ? "__Host-viv_pv" : "viv_pv");

/** Whether a cookie of this name is the gateway's: a guest must neither set nor see it. */
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

/** The Cookie header without the gateway's cookies; undefined when there are no others. */
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
