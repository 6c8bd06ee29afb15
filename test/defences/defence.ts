import type { Edit } from "./without.ts";

export interface Defence {
  row: string;
  /** What is taken away. */
  off: string;
  edits: Edit[];
  /** A test file and a test in it that stands for the row. */
  file: string;
  test: string;
}
