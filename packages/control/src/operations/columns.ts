/** Assignments to the columns of the operation, for moves that commit it. */

export const NO_OPERATION = { op: null, op_id: null, op_input: null, op_claimed_until: null };

/** The move ends the operation, or lets it go on to settling the session's machines. */
export function operationColumns({ thenSettle }: { thenSettle?: boolean }) {
  return thenSettle ? { op: "settle" as const, op_input: "{}" } : NO_OPERATION;
}
