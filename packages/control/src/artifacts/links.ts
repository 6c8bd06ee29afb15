/** Signed links: each opens one file without a credential, until the time in it. */
import { createHmac, timingSafeEqual } from "node:crypto";
import { LIMITS } from "@vivarium/contract/api";

export const linkKeyOf = (pepper: Buffer) => createHmac("sha256", pepper).update("artifact links").digest();

export function linkTo(
  { linkKey, publicUrl }: { linkKey: Buffer; publicUrl: string },
  { artifactId, position, expiresAt }: { artifactId: string; position: number; expiresAt: Date },
): string {
  const until = Math.floor(Math.min(Date.now() + LIMITS.artifactLinkMs, expiresAt.getTime()) / 1000);
  const signature = sign(linkKey, artifactId, position, until).toString("base64url");
  return `${publicUrl}/v1/artifacts/${artifactId}/files/${position}?until=${until}&signature=${signature}`;
}

export function isLinkValid(
  linkKey: Buffer,
  {
    artifactId,
    position,
    until,
    signature,
  }: { artifactId: string; position: number; until: number; signature: string },
): boolean {
  const given = Buffer.from(signature, "base64url");
  const expected = sign(linkKey, artifactId, position, until);
  return given.length === expected.length && timingSafeEqual(given, expected) && until * 1000 > Date.now();
}

function sign(key: Buffer, artifactId: string, position: number, until: number): Buffer {
  return createHmac("sha256", key).update(`v1|${artifactId}|${position}|${until}`).digest();
}
