/**
 * Calls of control that pack saved states into archives, and unpack them (docs/design/cold-tier.md):
 *
 *   POST   /v1/snapshots/{snapshot_id}/pack    → 200, frames. The last one is a PackResult, with the archive's names and sizes.
 *          ?archive_id=[&base=]                  Refused before: snapshot_not_found, snapshot_damaged, base_not_found
 *   POST   /v1/snapshots/{snapshot_id}/unpack  → 200, frames. The last one is an UnpackResult, once the snapshot is durable,
 *          ?archive_id=&contents=                whole and listed. One that is here already: the same answer, without asks.
 *          [&base=][&bytes=]                     Refused before: base_not_found, disk_pressure,
 *                                                snapshot_damaged, which is deleted first
 *   DELETE /v1/snapshots/{snapshot_id}         → also ends what packs or unpacks it. An archive is not the node's to delete
 *
 * `archive_id`: what the archive is sealed for, and `contents` the name that its PackResult had. `base`: the snapshot or the
 * baseline that the state differs from. An archive is unpacked with the base that it was packed with, or none. A base that is
 * not here is unpacked first: it is an archive too.
 *
 * The keys are in headers, as 43 digits of base64url: the archive's in ARCHIVE_KEY_HEADER, the secret of its space in
 * SPACE_SECRET_HEADER. They are in no body and no query, which may be kept. A sealed snapshot stays sealed, so no call
 * needs its state key.
 *
 * The frames are those of packages/archive (frames.ts). The answer's body asks for chunks of one space, and the request's body
 * (`application/octet-stream`, without a length) answers: `serveChunks` of that package does, and returns the last frame's
 * payload, JSON. Then the caller ends its body. An end of the answer without such a frame is a failure that may pass. If
 * the caller leaves, the node stops; what was sent is found by the next attempt.
 *
 * A node packs few states at a time, and unpacks few; further calls wait, without a frame.
 *
 * A baseline has an id of a snapshot's form. Another bake has another id, on the same host too. SnapshotStatus says from
 * which one a snapshot was made (`baseline_id`), if that is still here. It is packed under its id, without a base. One
 * of another host is unpacked under its id as well, and then listed and deleted as a snapshot. Those of the node's own images
 * and builds answer to GET alone.
 */
import { z } from "zod";
import { SnapshotId, SnapshotStatus } from "./calls.ts";
import { NODE_ERRORS, type NodeErrorCode } from "./refusals.ts";

export const ARCHIVE_KEY_HEADER = "vivarium-archive-key";
export const SPACE_SECRET_HEADER = "vivarium-space-secret";
/** 32 random bytes, base64url. */
export const ArchiveSecretText = z.string().regex(/^[A-Za-z0-9_-]{43}$/);

const ArchiveId = z.string().regex(/^[a-z0-9_-]{1,64}$/);
/** Name of an object: 64 hexadecimal digits. */
const ObjectName = z.string().regex(/^[0-9a-f]{64}$/);

export const PackQuery = z.strictObject({ archive_id: ArchiveId, base: SnapshotId.optional() });
export type PackQuery = z.infer<typeof PackQuery>;

export const UnpackQuery = PackQuery.extend({
  contents: ObjectName,
  /** Bytes that it takes of the disk at most, which are reserved meanwhile: `differing_bytes` of its PackResult. */
  bytes: z.coerce.number().pipe(z.int().min(0)).optional(),
});
export type UnpackQuery = z.infer<typeof UnpackQuery>;

/**
 * Why an archive cannot be used. Another attempt gives the same until an object is put again, or base and key are others. The
 * first ones are those of packages/archive (unusable-archive.ts). `damaged`: all objects are what was put, and yet the
 * folder is not the state that was saved, so the base is not what it was, or the state was damaged before.
 */
export const ARCHIVE_REASONS = [
  "missing",
  "cut_short",
  "too_long",
  "altered",
  "wrong_key",
  "unknown_form",
  "wrong_base",
  "damaged",
] as const;
export type ArchiveReason = (typeof ARCHIVE_REASONS)[number];

/** A refusal in the last frame, whose code may be any of NODE_ERRORS. */
export const ArchiveRefusal = z.object({
  code: z.enum(Object.keys(NODE_ERRORS) as [NodeErrorCode, ...NodeErrorCode[]]),
  message: z.string(),
  /** With archive_unusable. */
  reason: z.enum(ARCHIVE_REASONS).optional(),
});
export type ArchiveRefusal = z.infer<typeof ArchiveRefusal>;

export const Packed = z.object({
  /** Name of the object with the contents. It opens the archive, together with the archive's key. */
  contents: ObjectName,
  /** Names of all chunks that the archive needs, also of those that were there before. */
  chunks: z.array(ObjectName),
  /** Bytes that differ from the base, before compression. */
  differing_bytes: z.int(),
  /** Bytes of the objects that this call has sent. */
  sent_bytes: z.int(),
});
export type Packed = z.infer<typeof Packed>;

export const PackResult = z.union([z.object({ packed: Packed }), z.object({ refused: ArchiveRefusal })]);
export type PackResult = z.infer<typeof PackResult>;

export const UnpackResult = z.union([
  z.object({ unpacked: SnapshotStatus }),
  z.object({ refused: ArchiveRefusal }),
]);
export type UnpackResult = z.infer<typeof UnpackResult>;
