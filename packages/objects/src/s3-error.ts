/**
 * Says what failed between this process and an S3 server, and what the operator can do. The SDK's own errors end here:
 * they hold what the server sent, which may repeat headers that were signed.
 */
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";

export class S3Error extends Error {
  /** The server's name for the error, or that of the system for a failed connection. */
  readonly code: string;
  /** Undefined: there was no answer. */
  readonly status: number | undefined;

  constructor(message: string, code: string, status?: number) {
    super(message);
    this.code = code;
    this.status = status;
  }

  /** The request may have been carried out all the same. */
  get isUnsettled(): boolean {
    return this.status === undefined || this.status < 400 || this.status >= 500;
  }
}

const RIGHTS =
  "s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload and s3:ListMultipartUploadParts";

/** Advice by code or status. The first that matches counts. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /^(InvalidAccessKeyId|InvalidClientTokenId|XAdminUserNotFound)$/,
    "The server does not know the access key. Correct the credential.",
  ],
  [
    /^SignatureDoesNotMatch$/,
    "The secret key is not that of the access key, or the region is another, or a proxy changes requests.",
  ],
  [/^(ExpiredToken|InvalidToken|TokenRefreshRequired)$/, "The credential has expired. Replace it."],
  [/^RequestTimeTooSkewed$/, "The clock of this host is wrong. Set it."],
  [/^(NoSuchBucket|InvalidBucketName)$/, "Make the bucket, or correct VIV_OBJECTS."],
  [
    /^(PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraintException|30[17])$/,
    "The bucket is in another region. Correct VIV_OBJECTS_REGION, and VIV_OBJECTS_ENDPOINT if it is set.",
  ],
  [
    /^(BadDigest|InvalidDigest|InvalidChecksum|XAmzContent\w+)$/,
    "Bytes were changed on their way to the server. Reach it by https, without a proxy that rewrites requests.",
  ],
  [/^(QuotaExceeded|InsufficientStorage|XMinioStorageFull|507)$/, "The store is full. Make space in it."],
  [
    /^(NotImplemented|MethodNotAllowed|501)$/,
    "The server lacks a part of S3 that is needed. Use another one.",
  ],
  [/^(AccessDenied|Forbidden|AllAccessDisabled|403)$/, `The credential needs ${RIGHTS}.`],
  [
    /^(SlowDown|ServiceUnavailable|RequestTimeout|TooManyRequests|429|5\d\d)$/,
    "The server is overloaded or broken.",
  ],
  [
    /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|TimeoutError)$/,
    "Check VIV_OBJECTS_ENDPOINT, and that this host reaches it.",
  ],
  [
    /CERT|UNABLE_TO_|ERR_TLS|ERR_SSL|EPROTO/,
    "Its certificate is not trusted. Name the authority in NODE_EXTRA_CA_CERTS, or correct VIV_OBJECTS_ENDPOINT.",
  ],
];

/** `what` is the call, as in "put a/b". */
export function explained(error: unknown, what: string, place: string): Error {
  if (error instanceof S3Error) return error;
  const code = codeOf(error);
  const { httpStatusCode: status, attempts = 1 } = metadataOf(error);
  const parts = [code, status !== undefined && `status ${status}`, attempts > 1 && `${attempts} attempts`];
  const advice = ADVICE.find(([pattern]) => pattern.test(code) || pattern.test(String(status)))?.[1];
  const message = `the object store ${place} did not ${what}: ${parts.filter(Boolean).join(", ")}.`;
  return new S3Error(advice ? `${message} ${advice}` : message, code, status);
}

interface Metadata {
  httpStatusCode?: number;
  attempts?: number;
}

function metadataOf(error: unknown): Metadata {
  return (error as { $metadata?: Metadata } | undefined)?.$metadata ?? {};
}

/** The message of an error that came from neither the server nor the system is our own. */
function codeOf(error: unknown): string {
  const { name } = error as Error;
  // The SDK has no name for an answer that it could not read.
  if (metadataOf(error).httpStatusCode !== undefined) return name === "Error" ? "unreadable answer" : name;
  if (hasCode(error, String((error as { code?: unknown }).code))) return error.code;
  if (error instanceof Error && error.name !== "Error") return error.name;
  return messageOf(error);
}
