import { OrgEgressCap, OrgEgressCapPut } from "@vivarium/contract/api";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { EgressDeps } from "./deps.ts";
import { setOrgCap } from "./org-cap.ts";
import { readOrgCap } from "./org-cap-store.ts";

const tags = ["Egress"];

export function addOrgCapRoutes(server: Server, deps: EgressDeps): void {
  server.get(
    "/v1/org/egress-cap",
    {
      schema: {
        operationId: "getOrgEgressCap",
        summary: "Read the organisation's daily egress cap and what its sessions sent today",
        tags,
        response: { 200: OrgEgressCap, ...errorAnswers() },
      },
    },
    async (request) => await readOrgCap(deps.db, deps.egressCaps, principalOf(request).orgId),
  );
  server.put(
    "/v1/org/egress-cap",
    {
      schema: {
        operationId: "setOrgEgressCap",
        summary: "Set the organisation's daily egress cap; over it, its sessions are paused and none starts",
        tags,
        body: OrgEgressCapPut,
        response: { 200: OrgEgressCap, ...errorAnswers("forbidden") },
      },
    },
    async (request) => await setOrgCap(deps, principalOf(request), request.body.cap_bytes),
  );
}
