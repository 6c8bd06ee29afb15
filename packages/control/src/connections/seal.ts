/** Seals the credentials of Connections with their session's data key, each for its name and generation. */
import { timingSafeEqual } from "node:crypto";
import type { InjectedHeader } from "@vivarium/contract/gateway";
import { type Owner, openFor, sealFor } from "../secrets/data-key.ts";
import type { NewConnection } from "./check.ts";
import type { SealedConnection } from "./store.ts";

const placeOf = ({ name, generation }: { name: string; generation: number }) =>
  `connection|${generation}|${name}`;

export function sealConnection(
  key: Buffer,
  owner: Owner,
  { authType, headerName, secret, ttlS, askedTtlS, ...rules }: NewConnection,
  generation: number,
): SealedConnection {
  return {
    ...rules,
    auth_type: authType,
    header_name: headerName,
    generation,
    ttl_s: ttlS,
    asked_ttl_s: askedTtlS,
    sealed: sealFor(key, owner, placeOf({ name: rules.name, generation }), Buffer.from(secret)),
  };
}

interface Sealed {
  name: string;
  generation: number;
  auth_type: "bearer" | "header";
  header_name: string;
  sealed: Buffer;
}

/** Compares in constant time, so that how long an answer takes says nothing of the credential. */
export function isSameSecret(key: Buffer, owner: Owner, of: Sealed, { secret }: NewConnection): boolean {
  const [one, other] = [openFor(key, owner, placeOf(of), of.sealed), Buffer.from(secret)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/** The same credential, sealed for another generation. */
export function sealedAgain(key: Buffer, owner: Owner, { name, ...of }: Sealed, generation: number): Buffer {
  const secret = openFor(key, owner, placeOf({ name, ...of }), of.sealed);
  return sealFor(key, owner, placeOf({ name, generation }), secret);
}

export function openHeader(key: Buffer, owner: Owner, connection: Sealed): InjectedHeader {
  const secret = openFor(key, owner, placeOf(connection), connection.sealed).toString();
  const value = connection.auth_type === "bearer" ? `Bearer ${secret}` : secret;
  return { name: connection.header_name, value };
}
