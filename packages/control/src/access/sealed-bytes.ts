/**
 * Encrypts values that the database keeps (AES-256-GCM). What is sealed opens with the same key and the same context only,
 * so bytes that were changed, or copied to another row, do not open.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of sealed bytes: the version of their format. */
const FORM = 1;
/** By so much sealed bytes are longer than what they hold. */
export const SEALED_OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES;

/** `context` names the place of the value, for example its row and column. */
export function sealBytes(key: Buffer, context: string, bytes: Buffer): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(context));
  const sealed = Buffer.concat([cipher.update(bytes), cipher.final()]);
  return Buffer.concat([Buffer.from([FORM]), nonce, sealed, cipher.getAuthTag()]);
}

/** Throws if the bytes were sealed with another key or context, or changed since. The error contains nothing of them. */
export function openSealed(key: Buffer, context: string, sealed: Buffer): Buffer {
  if (sealed[0] !== FORM || sealed.length < SEALED_OVERHEAD_BYTES)
    throw new Error("sealed bytes are not in a form that this release knows");
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const tag = sealed.subarray(-TAG_BYTES);
  const cipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(context)).setAuthTag(tag);
  return Buffer.concat([cipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES)), cipher.final()]);
}
