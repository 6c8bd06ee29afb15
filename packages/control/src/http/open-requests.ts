/**
 * The open requests and connections of each credential, so that they end when it is revoked or expires
 * (docs/spec/access.md).
 */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Principal } from "../access/principal.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Absent for requests without a credential. */
    openRequest?: OpenRequest;
  }
}

const MOST_LISTENERS = 20;

/** A credential, and when it ends by itself. */
export type Ending = Pick<Principal, "credentialId" | "expiresAt">;

/** One open request. A WebSocket that is made of it replaces `end`, and calls `isOver` itself. */
export interface OpenRequest {
  readonly expiresAt: Date | null;
  end: () => void;
  isOver: () => void;
}

export class OpenRequests {
  readonly #ofCredential = new Map<string, Set<OpenRequest>>();

  add({ credentialId, expiresAt }: Ending, end: () => void): OpenRequest {
    const open = this.#ofCredential.get(credentialId) ?? new Set();
    this.#ofCredential.set(credentialId, open);
    const isOver = () => {
      open.delete(request);
      if (open.size === 0 && this.#ofCredential.get(credentialId) === open)
        this.#ofCredential.delete(credentialId);
    };
    const request: OpenRequest = { expiresAt, end, isOver };
    open.add(request);
    return request;
  }

  /** Credentials that have open requests. */
  credentialIds(): string[] {
    return [...this.#ofCredential.keys()];
  }

  /** Ends what credentials have open whose time is over. Asks no database: that may be away just then. */
  endExpired(now = Date.now()): void {
    for (const open of this.#ofCredential.values())
      for (const request of open)
        if (request.expiresAt !== null && request.expiresAt.getTime() <= now) request.end();
  }

  /** Ends everything that this credential has open, but for the one request that asked for it. */
  endOf(credentialId: string, except?: OpenRequest): void {
    for (const request of this.#ofCredential.get(credentialId) ?? []) if (request !== except) request.end();
  }
}

/** Keeps every authenticated request in `openRequests` until its answer is over. Comes after the credential's check. */
export function trackOpenRequests(server: FastifyInstance, deps: { openRequests: OpenRequests }): void {
  server.addHook("onRequest", async (request: FastifyRequest, reply) => {
    // The operator's key is not revoked while the service runs.
    if (!request.principal || request.principal.kind === "operator") return;
    const open = deps.openRequests.add(request.principal, () => request.raw.socket.destroy());
    request.openRequest = open;
    // With the listeners of other hooks there are more than ten, from where on Node suspects a leak.
    reply.raw.setMaxListeners(MOST_LISTENERS).once("close", open.isOver);
  });
}
