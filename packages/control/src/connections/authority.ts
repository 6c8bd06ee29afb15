/** The certificate authority of a session with Connections: its guest trusts it, and the gateway signs with its key. */
import type { SessionCa } from "@vivarium/contract/gateway";
import type { StartSpec } from "@vivarium/contract/node";
import { makeAuthority, subjectHash } from "@vivarium/kit/certificates";
import { type Owner, openFor, sealFor } from "../secrets/data-key.ts";
import type { SessionRow } from "../sessions/store.ts";

/** A session may be paused for as long as its owner likes, and its lifetime is counted from its create. */
const LIFE_MS = 20 * 365 * 24 * 3_600_000;
const PLACE = "ca";

const nameOf = (sessionId: string) => `vivarium session ${sessionId}`;

/** Columns of a new session that names Connections to these hosts. */
export async function authorityColumns(key: Buffer, owner: Owner, hosts: string[]) {
  const { certificatePem, keyPem } = await newAuthority(owner.id);
  return {
    bound_hosts: hosts,
    ca_certificate: certificatePem,
    ca_key: sealFor(key, owner, PLACE, Buffer.from(keyPem)),
    connections_version: 1,
  };
}

async function newAuthority(sessionId: string) {
  return await makeAuthority({ name: nameOf(sessionId), notAfter: new Date(Date.now() + LIFE_MS) });
}

/** The part of a machine's spec that makes its guest trust the session's authority. */
export function guestAuthorityOf({ id, ca_certificate: pem }: SessionRow): Pick<StartSpec, "ca"> {
  if (pem === null) return {};
  return { ca: { certificate_pem: pem, subject_hash: subjectHash(nameOf(id)) } };
}

/** The authority with its key. Undefined once the session has ended. */
export function openAuthority(key: Buffer, session: SessionRow): SessionCa | undefined {
  const { ca_certificate: pem, ca_key: sealed } = session;
  if (pem === null || sealed === null) return undefined;
  return { certificate_pem: pem, key_pem: openFor(key, session, PLACE, sealed).toString() };
}
