/**
 * Data keys: each session and each checkpoint with sealed values has one of its own, which is kept wrapped by a
 * key-encryption key. Without its wrapped data key nothing of the owner can be opened again.
 */
import { randomBytes } from "node:crypto";
import { openSealed, sealBytes } from "../access/sealed-bytes.ts";
import { ApiError } from "../errors/api-error.ts";
import type { Kek } from "./kek-text.ts";
import type { Keyring } from "./keyring.ts";

const DATA_KEY_BYTES = 32;

/** The session or checkpoint that a data key belongs to: what is sealed for it does not open for another. */
export interface Owner {
  org_id: string;
  id: string;
}

/** The columns of a wrapped data key. */
export interface WrappedKey {
  kek_id: string;
  data_key: Buffer;
}

export type ValueKind = "env" | "secrets";
type Values = Record<string, string>;

export function newDataKey(kek: Kek, owner: Owner): { key: Buffer; wrapped: WrappedKey } {
  const key = randomBytes(DATA_KEY_BYTES);
  return { key, wrapped: wrap(kek, owner, key) };
}

export async function openDataKey(keyring: Keyring, owner: Owner & WrappedKey): Promise<Buffer> {
  const kek = await keyring.require(owner.kek_id);
  return opened(owner, () => openSealed(kek.key, wrapContext(owner, kek.id), owner.data_key));
}

/** The same data key, wrapped by another key-encryption key. */
export async function rewrapped(keyring: Keyring, kek: Kek, owner: Owner & WrappedKey): Promise<WrappedKey> {
  return wrap(kek, owner, await openDataKey(keyring, owner));
}

/** Seals bytes for one place of the owner, which `what` names: they open for no other. */
export function sealFor(key: Buffer, owner: Owner, what: string, bytes: Buffer): Buffer {
  return sealBytes(key, valueContext(owner, what), bytes);
}

export function openFor(key: Buffer, owner: Owner, what: string, sealed: Buffer): Buffer {
  return opened(owner, () => openSealed(key, valueContext(owner, what), sealed));
}

export function sealValues(key: Buffer, owner: Owner, kind: ValueKind, values: Values): Buffer {
  return sealFor(key, owner, kind, Buffer.from(JSON.stringify(values)));
}

export function openValues(key: Buffer, owner: Owner, kind: ValueKind, sealed: Buffer): Values {
  return JSON.parse(openFor(key, owner, kind, sealed).toString());
}

function wrap(kek: Kek, owner: Owner, key: Buffer): WrappedKey {
  return { kek_id: kek.id, data_key: sealBytes(kek.key, wrapContext(owner, kek.id), key) };
}

function opened(owner: Owner, open: () => Buffer): Buffer {
  try {
    return open();
  } catch (cause) {
    throw new ApiError(
      "internal",
      `the sealed values of ${owner.id} cannot be opened: they were changed, or the key-encryption key of their id is another one`,
      { cause },
    );
  }
}

const wrapContext = ({ org_id: org, id }: Owner, kekId: string) => `dek|v1|${org}|${id}|${kekId}`;
const valueContext = ({ org_id: org, id }: Owner, what: string) => `v|1|${org}|${id}|${what}`;
