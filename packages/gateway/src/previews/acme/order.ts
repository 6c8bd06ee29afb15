/**
 * One certificate for every preview of the node, `*.<node domain>`, from an ACME authority (Let's Encrypt and others).
 * An authority issues a wildcard only to those who can write the domain's DNS: a command of the operator does that.
 */
import { execFile } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { Client, crypto } from "acme-client";
import type { Pair } from "../certificate.ts";

export interface AcmeConfig {
  /** The authority's directory, a URL. */
  directoryUrl: string;
  /** Where the authority writes to about the certificate. */
  email?: string;
  /**
   * A program that is run as `<hook> present|remove _acme-challenge.<node domain> <value>`; after `present` the TXT
   * record must be there for the world to see.
   */
  dnsHook: string;
  /** Created when missing. */
  accountKeyFile: string;
}

/** Some providers of DNS take minutes until all their servers know. */
const HOOK_LIMIT_MS = 10 * 60_000;
const run = promisify(execFile);

export async function orderCertificate(config: AcmeConfig, nodeDomain: string): Promise<Pair> {
  const client = new Client({
    directoryUrl: config.directoryUrl,
    accountKey: await accountKey(config.accountKeyFile),
  });
  const [key, csr] = await crypto.createCsr(
    { altNames: [`*.${nodeDomain}`] },
    await crypto.createPrivateEcdsaKey(),
  );
  const record = `_acme-challenge.${nodeDomain}`;
  const callHook = (verb: "present" | "remove", value: string) =>
    run(config.dnsHook, [verb, record, value], { timeout: HOOK_LIMIT_MS });
  const cert = await client.auto({
    csr,
    email: config.email,
    termsOfServiceAgreed: true,
    challengePriority: ["dns-01"],
    // Not checked here: the host's resolver may not see the public record. The hook is responsible.
    skipChallengeVerification: true,
    challengeCreateFn: async (_authorization, _challenge, value) => void (await callHook("present", value)),
    challengeRemoveFn: async (_authorization, _challenge, value) => void (await callHook("remove", value)),
  });
  return { cert: Buffer.from(cert), key };
}

async function accountKey(file: string): Promise<Buffer> {
  if (!existsSync(file)) writeFileSync(file, await crypto.createPrivateEcdsaKey(), { mode: 0o600 });
  return readFileSync(file);
}
