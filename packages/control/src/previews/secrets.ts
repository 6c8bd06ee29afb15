/**
 * Makes, encrypts and hashes the credentials of routes. Ingress tokens are encrypted, because later answers contain
 * them again; bearer tokens are hashed. The key is a file outside the database. So a stolen database, or a row copied
 * to another route, opens nothing.
 */
import { createHash, createHmac, randomBytes } from "node:crypto";
import path from "node:path";
import { loadKeyFile } from "../access/key-file.ts";
import { openSealed, sealBytes } from "../access/sealed-bytes.ts";

const TOKEN_BYTES = 32;

/** The route that a sealed token is bound to: it cannot be opened for another route. */
export interface SealContext {
  orgId: string;
  sessionId: string;
  port: number;
}

export async function loadPreviewKey(controlDir: string): Promise<Buffer> {
  return await loadKeyFile(path.join(controlDir, "preview.key"));
}

/** A token of 256 random bits, in characters that need no escaping in a URL. */
export function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString("base64url");
}

export function sha256Hex(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export function seal(key: Buffer, context: SealContext, token: string): Buffer {
  return sealBytes(keyFor(key, "seal"), contextOf(context), Buffer.from(token));
}

export function unseal(key: Buffer, context: SealContext, sealed: Buffer): string {
  return openSealed(keyFor(key, "seal"), contextOf(context), sealed).toString();
}

/** Key with which the gateway signs a visitor's cookie. Derived for each version of a route, never stored. */
export function cookieKey(key: Buffer, { sessionId, port }: SealContext, version: number): string {
  return createHmac("sha256", keyFor(key, "cookie"))
    .update(`v1|${sessionId}|${port}|${version}`)
    .digest("hex");
}

/** Derives a key for each purpose from the one in the file. */
function keyFor(key: Buffer, purpose: "seal" | "cookie"): Buffer {
  return createHmac("sha256", key).update(`preview ${purpose}`).digest();
}

function contextOf({ orgId, sessionId, port }: SealContext): string {
  return `v|1|${orgId}|${sessionId}|ingress_token|${port}`;
}
