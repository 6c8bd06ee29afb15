import { ErrorBody, type ErrorCode, errorRow } from "@vivarium/contract/api";

type ErrorAnswers = Record<number, typeof ErrorBody>;

/** The error answers of an endpoint as the OpenAPI document lists them: its own, and those of every endpoint. */
export function errorAnswers(...codes: ErrorCode[]): ErrorAnswers {
  const answers: ErrorAnswers = {};
  for (const code of [...codes, ...EVERYWHERE]) answers[errorRow(code).status] = ErrorBody;
  return answers;
}

const EVERYWHERE = [
  "validation",
  "unauthenticated",
  "internal",
  "unavailable",
] as const satisfies ErrorCode[];
