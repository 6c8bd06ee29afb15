/**
 * Credentials of routes. Ingress tokens are sealed, since they are told again; bearer tokens are hashed. The key is a
 * file outside the database, so that neither a stolen database nor a row copied to another route opens anything.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from "node:crypto";
import path from "node:path";
import { loadKeyFile } from "../access/key-file.ts";

const TOKEN_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Of the form below; a later one gets another number. */
const FORM = 1;

/** What a sealed value belongs to: it opens nowhere else. */
export interface SealedPlace {
  orgId: string;
  sessionId: string;
  port: number;
}

export async function loadPreviewKey(controlDir: string): Promise<Buffer> {
  return await loadKeyFile(path.join(controlDir, "preview.key"));
}

/** 256 random bits that need no escaping in a URL. */
export function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString("base64url");
}

export function sha256Hex(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export function seal(key: Buffer, place: SealedPlace, token: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", keyFor(key, "seal"), nonce).setAAD(placeBytes(place));
  const sealed = Buffer.concat([cipher.update(token, "utf8"), cipher.final()]);
  return Buffer.concat([Buffer.from([FORM]), nonce, sealed, cipher.getAuthTag()]);
}

export function unseal(key: Buffer, place: SealedPlace, sealed: Buffer): string {
  if (sealed[0] !== FORM || sealed.length <= 1 + NONCE_BYTES + TAG_BYTES)
    throw new Error("a sealed preview token is not in a form that this release knows");
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const tag = sealed.subarray(-TAG_BYTES);
  const cipher = createDecipheriv("aes-256-gcm", keyFor(key, "seal"), nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(placeBytes(place)).setAuthTag(tag);
  return Buffer.concat([
    cipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES)),
    cipher.final(),
  ]).toString();
}

/** Key of the gate cookie's MAC: another one for every version of a route, and stored nowhere. */
export function cookieKey(key: Buffer, { sessionId, port }: SealedPlace, version: number): string {
  return createHmac("sha256", keyFor(key, "cookie"))
    .update(`v1|${sessionId}|${port}|${version}`)
    .digest("hex");
}

/** One file, and a key of its own for each use. */
function keyFor(key: Buffer, purpose: "seal" | "cookie"): Buffer {
  return createHmac("sha256", key).update(`preview ${purpose}`).digest();
}

function placeBytes({ orgId, sessionId, port }: SealedPlace): Buffer {
  return Buffer.from(`v|1|${orgId}|${sessionId}|ingress_token|${port}`);
}
