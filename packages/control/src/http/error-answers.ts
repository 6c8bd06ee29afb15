import { ERRORS, ErrorBody, type ErrorCode, errorRow } from "@vivarium/contract/api";

type ErrorAnswers = Record<
  number,
  { description: string; content: { "application/json": { schema: typeof ErrorBody } } }
>;

/** The error answers of an endpoint as the OpenAPI document lists them: its own, and those of every endpoint. */
export function errorAnswers(...codes: ErrorCode[]): ErrorAnswers {
  const answers: ErrorAnswers = {};
  for (const code of [...codes, ...EVERYWHERE]) {
    const { status } = errorRow(code);
    answers[status] = {
      description: describe(status),
      content: { "application/json": { schema: ErrorBody } },
    };
  }
  return answers;
}

const EVERYWHERE = [
  "validation",
  "unauthenticated",
  "internal",
  "unavailable",
] as const satisfies ErrorCode[];

/** Every code of the status with its meaning, whichever of them the endpoint gives. */
function describe(status: number): string {
  return Object.entries(ERRORS)
    .filter(([, row]) => row.status === status)
    .map(([code, row]) => `\`${code}\`: ${row.meaning}`)
    .join("; ");
}
