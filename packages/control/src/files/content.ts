/** Decodes the content of a file in a request. */
import { type FileWrite, LIMITS } from "@vivarium/contract/api";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

type Content = Omit<FileWrite, "path">;

/** Undefined for invalid base64, and for text that is not valid Unicode: both would be written as something else. */
function bytesOf({ content, encoding }: Content): Buffer | undefined {
  if (encoding !== "base64") return content.isWellFormed() ? Buffer.from(content) : undefined;
  if (content.length % 4 !== 0 || !BASE64.test(content)) return undefined;
  return Buffer.from(content, "base64");
}

export function decodeContent(given: Content): Buffer {
  const bytes = bytesOf(given);
  if (!bytes)
    throw invalidField(
      "content",
      given.encoding === "base64"
        ? "must be base64 with padding, as `encoding` says"
        : "must be valid Unicode",
    );
  if (bytes.length > LIMITS.fileWriteBytes)
    throw new ApiError(
      "payload_too_large",
      `content: must be at most ${LIMITS.fileWriteBytes} bytes, got ${bytes.length}; upload larger files to files/stream`,
    );
  return bytes;
}
