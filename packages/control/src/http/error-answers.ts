import { ERRORS, ErrorBody, type ErrorCode, errorRow } from "@vivarium/contract/api";

interface ErrorAnswer {
  description: string;
  content: { "application/json": { schema: typeof ErrorBody } };
}

const EVERYWHERE: readonly ErrorCode[] = [
  "validation",
  "unauthenticated",
  "rate_limited",
  "internal",
  "unavailable",
];

/** The error answers of an endpoint as the OpenAPI document lists them: its own, and those of every endpoint. */
export function errorAnswers(...codes: ErrorCode[]): Record<number, ErrorAnswer> {
  const statuses = [...codes, ...EVERYWHERE].map((code) => errorRow(code).status);
  return Object.fromEntries(statuses.map((status) => [status, answerOf(status)]));
}

/** Lists all codes of this status with their meanings, also those that the endpoint never answers with. */
function answerOf(status: number): ErrorAnswer {
  const meanings = Object.entries(ERRORS)
    .filter(([, row]) => row.status === status)
    .map(([code, row]) => `\`${code}\`: ${row.meaning}`);
  return { description: meanings.join("; "), content: { "application/json": { schema: ErrorBody } } };
}
