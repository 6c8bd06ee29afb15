/** The one error for what a store gave back and is not what was put, and the closed list of its reasons. */

export const UNUSABLE_REASONS = [
  /** The store has no such object. */
  "missing",
  /** The object ends before its announced length. */
  "cut_short",
  /** The object is longer than any that was put, or than its announced length. */
  "too_long",
  /** The bytes are not those that were put under this name. */
  "altered",
  /** The archive was sealed with another key, or for another label. */
  "wrong_key",
  /** A later release has written it. */
  "unknown_form",
  /** The folder that it is the difference to is not here, or is another one. */
  "wrong_base",
] as const;
export type UnusableReason = (typeof UNUSABLE_REASONS)[number];

/** Another attempt gives the same; a store that does not answer throws errors of its own. */
export class UnusableArchive extends Error {
  readonly reason: UnusableReason;

  constructor(reason: UnusableReason, message: string) {
    super(message);
    this.reason = reason;
  }
}
