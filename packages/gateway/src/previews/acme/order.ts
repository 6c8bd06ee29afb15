/**
 * Orders one certificate for all previews of the node, `*.<node domain>`, from an ACME authority such as Let's Encrypt.
 * For a wildcard the authority asks for a record in the domain's DNS, which a program of the operator sets.
 */
import { execFile } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { Client, crypto } from "acme-client";
import type { Pair } from "../certificate.ts";

export interface AcmeConfig {
  /** URL of the authority's ACME directory. */
  directoryUrl: string;
  /** Address to which the authority sends mail about the certificate. */
  email?: string;
  /**
   * Path of a program that is run as `<hook> present|remove _acme-challenge.<node domain> <value>`. When `present` has
   * ended, the TXT record must be visible from everywhere.
   */
  dnsHook: string;
  /** Path of the account's private key. The file is created when missing. */
  accountKeyFile: string;
}

/** Time limit of the hook: some DNS providers take minutes to update all their servers. */
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
    // Not checked here, since this host's resolver may not see the public record. The hook has to wait for it.
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
