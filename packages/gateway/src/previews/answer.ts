/** Serves one visitor's request: checks it at the gate, wakes the session, waits for the request limit, forwards it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { RequestLimit } from "@vivarium/http1/request-limit";
import type { Log } from "@vivarium/kit/log";
import { judge, type Verdict } from "./gate.ts";
import type { Site } from "./host.ts";
import { routeKey } from "./lookup.ts";
import { BUSY, FOREIGN_ORIGIN, NOT_FOUND, type Page, sendPage, UNAUTHORIZED, UNAVAILABLE } from "./pages.ts";
import { pass } from "./pass.ts";
import { reachMachine } from "./reach-machine.ts";
import type { SharedWakes } from "./shared-wakes.ts";
import type { TablesInForce } from "./start.ts";
import { isMalformed } from "./strict-request.ts";
import type { IsTrustedProxy } from "./trusted-proxies.ts";
import { readVisit, type Visit } from "./visit.ts";
import type { VisitorFlow, VisitorFlows } from "./visitor-flows.ts";

export interface Ingress {
  site: Site;
  holdMs: number;
  tables: TablesInForce;
  wakes: SharedWakes;
  flows: VisitorFlows;
  requestLimit: RequestLimit;
  isTrustedProxy: IsTrustedProxy;
  log: Log;
  onActive: (sessionId: string) => void;
}

/** Machines that one request tries, since its session may be paused again before the guest answers. */
const MAX_MACHINES = 3;

const PAGE_OF = { hidden: NOT_FOUND, unauthorized: UNAUTHORIZED, foreign_origin: FOREIGN_ORIGIN };

type Admitted = Extract<Verdict, { is: "admitted" }>;

export async function answer(
  ingress: Ingress,
  request: IncomingMessage,
  response: ServerResponse,
  upgrade?: { head: Buffer },
): Promise<void> {
  if (isMalformed(request, upgrade)) {
    response.writeHead(400, { Connection: "close", "Content-Length": 0 }).end();
    return;
  }
  const visit = readVisit(ingress.site, request, upgrade !== undefined);
  if (visit === undefined) return sendPage(response, undefined, NOT_FOUND);
  const verdict = judge(ingress.site, ingress.tables.current(), visit, Date.now());
  if (verdict.is === "admitted") return await serve(ingress, visit, verdict, request, response);
  if (verdict.is === "login") return redirect(response, verdict.location);
  if (verdict.is === "entering") return redirect(response, verdict.location, verdict.setCookie);
  sendPage(response, visit, PAGE_OF[verdict.is]);
}

function redirect(response: ServerResponse, location: string, setCookie?: string): void {
  response.writeHead(302, {
    Location: location,
    ...(setCookie === undefined ? {} : { "Set-Cookie": setCookie }),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Length": 0,
  });
  response.end();
}

async function serve(
  ingress: Ingress,
  visit: Visit,
  verdict: Admitted,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { route } = verdict;
  const flow = ingress.flows.open(route, request.socket, () => !visit.isUpgrade && !request.complete);
  if (flow === undefined) return sendPage(response, visit, BUSY);
  try {
    for (let machines = 0; machines < MAX_MACHINES; machines++) {
      const machine = await reachMachine(ingress, route, flow);
      if ("status" in machine) return sendUnlessGone(response, visit, flow, machine);
      const giveBack = await ingress.requestLimit.take(routeKey(route.session_id, route.port));
      if (!giveBack) return sendUnlessGone(response, visit, flow, BUSY);
      try {
        if (flow.visitor.destroyed) return;
        ingress.onActive(route.session_id);
        flow.machineId = machine.machineId;
        const { address } = machine;
        const outcome = await pass({ ...ingress, ...verdict, visit, request, response, flow, address });
        if (outcome === "over") return;
      } finally {
        giveBack();
      }
    }
    sendUnlessGone(response, visit, flow, UNAVAILABLE);
  } finally {
    ingress.flows.done(flow);
  }
}

function sendUnlessGone(response: ServerResponse, visit: Visit, flow: VisitorFlow, page: Page): void {
  if (!flow.visitor.destroyed) sendPage(response, visit, page);
}
