/** Classifies errors of queries by SQLSTATE, system code or the driver's message. */
const CONNECTION_STATES = new Set(["57P01", "57P02", "57P03", "53300", "40001", "40P01", "25P03", "57014"]);
const CONNECTION_CODES = new Set(["ECONNREFUSED", "ECONNRESET", "ENOENT", "EPIPE", "ETIMEDOUT", "EAI_AGAIN"]);
const CONNECTION_SENTENCES =
  /connection terminated|timeout exceeded when trying to connect|client has encountered a connection error|not queryable|driver has already been destroyed|cannot use a pool after/i;

/** Whether the database was not reachable, broke off, or gave up the query (timeout, deadlock): a retry may succeed. */
export function isStoreUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = codeOf(error);
  if (code.startsWith("08") || CONNECTION_STATES.has(code)) return true;
  if (CONNECTION_CODES.has(code) && (isSocketCall(error) || error instanceof AggregateError)) return true;
  return CONNECTION_SENTENCES.test(error.message);
}

/** The SQLSTATE if the database refused the data itself. It will refuse the same data again. */
export function refusedData(error: unknown): string | undefined {
  const code = codeOf(error);
  return /^22[0-9A-Z]{3}$/.test(code) ? code : undefined;
}

/** Whether the named unique index refused a row. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return codeOf(error) === "23505" && (error as { constraint?: unknown }).constraint === constraint;
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

function isSocketCall(error: Error): boolean {
  return "syscall" in error && ["connect", "read", "write", "getaddrinfo"].includes(String(error.syscall));
}
