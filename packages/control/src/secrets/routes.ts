/** Routes of key-encryption keys, for the operator. */
import { KekRotation, KekStatus } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { Keyring } from "./keyring.ts";
import { rotateKek } from "./rotate.ts";
import { kekStatus } from "./status.ts";

const tags = ["Operator"];
const PATH = "/v1/admin/keys/rotate";

export function addKekRoutes(server: Server, deps: { db: Database; keyring: Keyring }): void {
  const read = {
    operationId: "getKekStatus",
    summary: "Say which key-encryption keys are loaded, and how much each still wraps",
    tags,
    response: { 200: KekStatus, ...errorAnswers("forbidden") },
  };
  server.get(PATH, { schema: read }, () => kekStatus(deps));
  const rotate = {
    operationId: "rotateKek",
    summary: "Seal with a new key-encryption key from now on, and bring what is sealed under it",
    tags,
    body: KekRotation,
    response: { 200: KekStatus, ...errorAnswers("forbidden", "conflict") },
  };
  server.post(PATH, { schema: rotate }, async (request) => {
    if (!deps.keyring.current)
      throw new ApiError("conflict", "this service has no key-encryption key: set VIV_KEK_FILE first");
    await rotateKek(deps);
    request.log.info({ kek: deps.keyring.current.id }, "another key-encryption key seals from now on");
    return await kekStatus(deps);
  });
}
