/**
 * The builder: a machine with an agent of its own, which unpacks one container image. The agent answers health and
 *
 *   POST /v1/unpack                     → 200 frames (frames.ts): `items` with UnpackProgress as lines of JSON, then `eof`
 *                                         with UnpackTotals, or `error` with UnpackFailure
 *
 * and the machine ends when the host hangs up after that. Its first disk is the target, its second one begins with LayerTable
 * as JSON, which ends with a NUL.
 */
import { z } from "zod";
import type { ListShape } from "./lists.ts";

/** Space for the table at the beginning of the second disk. Layers begin behind it, at multiples of LAYER_ALIGNMENT. */
export const LAYER_TABLE_BYTES = 1024 * 1024;
export const LAYER_ALIGNMENT = 4096;

export interface LayerTable {
  /** Lowest first. */
  layers: LayerOnDisk[];
  /** The image's variables, as lines of /etc/environment, where the agent of its machines reads them. */
  environment: string;
}

export interface LayerOnDisk {
  offset: number;
  bytes: number;
  /** By the type that the registry gave the layer, which its content has to confirm. */
  compression: "none" | "gzip" | "zstd";
  /** Digest of the unpacked layer. */
  diff_id: string;
}

export const UnpackProgress = z.object({
  /** Number of the layer at work, from 0. */
  layer: z.int().min(0).max(1_000),
  /** Bytes of it that are read, as they are stored. */
  bytes: z.int().min(0),
});
export type UnpackProgress = z.infer<typeof UnpackProgress>;

/** Sums over all layers; what a later layer replaces counts too. */
/** Parts that an image without them gets of the builder: a shell that needs no library, a bundle of certificates. */
export const GIVEN = ["shell", "certificates"] as const;

export const UnpackTotals = z.object({
  entries: z.int().min(0),
  bytes: z.int().min(0),
  inodes: z.int().min(0),
  /** Devices and FIFOs, which are left out. */
  skipped: z.int().min(0),
  /** Absent from a builder that an earlier set-up made, which gives nothing. */
  given: z.array(z.enum(GIVEN)).max(GIVEN.length).default([]),
});
export type UnpackTotals = z.infer<typeof UnpackTotals>;

export const UnpackFailure = z.object({
  code: z.enum(["image_invalid", "image_too_large", "internal"]),
  message: z.string().max(1024),
});
export type UnpackFailure = z.infer<typeof UnpackFailure>;

export const UNPACKING: ListShape<UnpackProgress, UnpackTotals> = {
  item: UnpackProgress,
  end: UnpackTotals,
  mostItems: 100_000,
  mostBytes: 512 * 1024 * 1024,
};
