/** Routes of scoped tokens. */
import { TokenCreate, TokenCreated, TokenList } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { SessionParams } from "../sessions/params.ts";
import { listSessionTokens, mintToken, revokeToken, type TokenDeps } from "./tokens.ts";

const tags = ["Tokens"];
const params = SessionParams;

export function addTokenRoutes(server: Server, deps: TokenDeps): void {
  const list = {
    operationId: "listTokens",
    summary: "List a session's scoped tokens that have not ended, newest first",
    tags,
    params,
    response: { 200: TokenList, ...errorAnswers("forbidden", "not_found") },
  };
  server.get("/v1/sessions/:id/tokens", { schema: list }, async (request) =>
    listSessionTokens(deps.db, principalOf(request), request.params.id),
  );
  const mint = {
    operationId: "mintToken",
    summary: "Mint a scoped token for a session; the answer is the only one that shows it",
    tags,
    params,
    body: TokenCreate,
    response: {
      201: TokenCreated,
      ...errorAnswers("forbidden", "not_found", "conflict", "session_ended"),
    },
  };
  server.post("/v1/sessions/:id/tokens", { schema: mint }, async (request, reply) => {
    const { params, body } = request;
    const principal = principalOf(request);
    const by = callerOf(principal, request);
    const minted = await mintToken(deps, principal, { id: params.id, body, by });
    return await reply.status(201).header("cache-control", "no-store").send(minted);
  });
  const revoke = {
    operationId: "revokeToken",
    summary: "Revoke a scoped token; its open streams and connections end",
    tags,
    params: SessionParams.extend({ hash: z.string() }),
    response: {
      204: z.void().meta({ description: "Revoked" }),
      ...errorAnswers("forbidden", "not_found"),
    },
  };
  server.delete("/v1/sessions/:id/tokens/:hash", { schema: revoke }, async (request, reply) => {
    const principal = principalOf(request);
    await revokeToken(deps, principal, { ...request.params, by: callerOf(principal, request) });
    return await reply.status(204).send();
  });
}
