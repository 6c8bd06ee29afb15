/** The order for the process that packs or unpacks one saved state, and how it went. It gets the keys on no command line. */
import type { ArchiveRefusal, Packed } from "@vivarium/contract/node";

export interface Order {
  action: "pack" | "unpack";
  /** The folder of the saved state. */
  dir: string;
  base?: { id: string; dir: string } | undefined;
  archiveId: string;
  /** The archive's key and the secret of its space, base64url. */
  key: string;
  secret: string;
  /** Name of the contents that are unpacked. */
  contents?: string | undefined;
  /** Crash points at which a test lets the process die once, and the folder with the records of that. */
  crash: { at: string | undefined; dir: string };
}

export type Outcome = { packed: Packed } | { isUnpacked: true } | { refused: ArchiveRefusal };
