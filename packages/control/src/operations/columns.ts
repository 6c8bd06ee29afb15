/** Assignments to the operation columns, for moves that commit an operation. */

export const NO_OPERATION = { op: null, op_id: null, op_input: null, op_claimed_until: null };

/** Ends the operation, or turns it into a `settle` of the session's machines. */
export function operationColumns({ thenSettle }: { thenSettle?: boolean }) {
  return thenSettle ? { op: "settle" as const, op_input: "{}" } : NO_OPERATION;
}
