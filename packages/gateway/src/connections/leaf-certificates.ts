/** Server certificates for one session's bound origins, signed by the session's authority and kept in memory. */
import { createSecureContext, type SecureContext } from "node:tls";
import type { SessionCa } from "@vivarium/contract/gateway";
import { signServer } from "@vivarium/kit/certificates";

const HOUR_MS = 3_600_000;
const LIFE_MS = 24 * HOUR_MS;
/** Age at which a certificate is replaced: a client never meets one that is about to end. */
const MAX_AGE_MS = 12 * HOUR_MS;

interface Leaf {
  context: Promise<SecureContext>;
  until: number;
}

export class LeafCertificates {
  readonly #ca: SessionCa;
  /** By host. Bounded: only hosts of the session's Connections are asked for. */
  readonly #leaves = new Map<string, Leaf>();

  constructor(ca: SessionCa) {
    this.#ca = ca;
  }

  isOf(ca: SessionCa): boolean {
    return ca.certificate_pem === this.#ca.certificate_pem && ca.key_pem === this.#ca.key_pem;
  }

  /** Rejects when the authority's key cannot sign. */
  contextFor(host: string): Promise<SecureContext> {
    const known = this.#leaves.get(host);
    if (known && known.until > Date.now()) return known.context;
    const context = this.#make(host);
    this.#leaves.set(host, { context, until: Date.now() + MAX_AGE_MS });
    context.catch(() => this.#leaves.delete(host));
    return context;
  }

  async #make(host: string): Promise<SecureContext> {
    const { certificate_pem, key_pem } = this.#ca;
    const authority = { certificatePem: certificate_pem, keyPem: key_pem };
    const { certificatePem, keyPem } = await signServer(authority, { host, lifeMs: LIFE_MS });
    return createSecureContext({ cert: certificatePem, key: keyPem, minVersion: "TLSv1.2" });
  }
}
