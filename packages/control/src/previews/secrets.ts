/**
 * Makes, encrypts and hashes the credentials of routes. Ingress tokens are encrypted, because later answers contain
 * them again; bearer tokens are hashed. The key is a file outside the database. So a stolen database, or a row copied
 * to another route, opens nothing.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from "node:crypto";
import path from "node:path";
import { loadKeyFile } from "../access/key-file.ts";

const TOKEN_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of a sealed token: the version of its format. */
const FORM = 1;

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
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", keyFor(key, "seal"), nonce).setAAD(contextBytes(context));
  const sealed = Buffer.concat([cipher.update(token, "utf8"), cipher.final()]);
  return Buffer.concat([Buffer.from([FORM]), nonce, sealed, cipher.getAuthTag()]);
}

export function unseal(key: Buffer, context: SealContext, sealed: Buffer): string {
  if (sealed[0] !== FORM || sealed.length <= 1 + NONCE_BYTES + TAG_BYTES)
    throw new Error("a sealed preview token is not in a form that this release knows");
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const tag = sealed.subarray(-TAG_BYTES);
  const cipher = createDecipheriv("aes-256-gcm", keyFor(key, "seal"), nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(contextBytes(context)).setAuthTag(tag);
  return Buffer.concat([
    cipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES)),
    cipher.final(),
  ]).toString();
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

function contextBytes({ orgId, sessionId, port }: SealContext): Buffer {
  return Buffer.from(`v|1|${orgId}|${sessionId}|ingress_token|${port}`);
}
