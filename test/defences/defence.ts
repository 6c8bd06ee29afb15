import type { Edit } from "./without.ts";

export interface Defence {
  row: string;
  /** The defence that is taken away. */
  off: string;
  edits: Edit[];
  /** A test file and a test in it that covers the row. */
  file: string;
  test: string;
}
