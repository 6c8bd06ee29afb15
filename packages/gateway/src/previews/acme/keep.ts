/** Orders a certificate when it is missing, or when less than a third of its life is left. */
import { X509Certificate } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import type { Log } from "@vivarium/kit/log";
import { type CertificateFiles, findPair, type Pair } from "../certificate.ts";
import type { AcmeConfig } from "./order.ts";

/** Not shorter, because it is also the pause after a failure: authorities block clients that repeat orders at once. */
const CHECK_EVERY_MS = 3600_000;

/** Checks at once and every hour; a failure is logged. Returns the function that ends this. */
export function keepCertificate(
  { log }: { log: Log },
  { acme, files, nodeDomain }: { acme: AcmeConfig; files: CertificateFiles; nodeDomain: string },
): () => void {
  let isOrdering = false;
  const orderIfDue = async () => {
    if (isOrdering || !isDue(files, Date.now())) return;
    isOrdering = true;
    try {
      // Imported here, since the ACME client is large and rarely needed.
      const { orderCertificate } = await import("./order.ts");
      writePair(files, await orderCertificate(acme, nodeDomain));
      log.info({ domain: `*.${nodeDomain}` }, "previews have a new certificate");
    } catch (error) {
      log.error(
        { err: error, domain: `*.${nodeDomain}` },
        "no certificate for previews was to be had; see that the DNS hook works. It is tried again in an hour",
      );
    } finally {
      isOrdering = false;
    }
  };
  void orderIfDue();
  const timer = setInterval(() => void orderIfDue(), CHECK_EVERY_MS).unref();
  return () => clearInterval(timer);
}

/** Whether to order: the pair is missing, cannot be used, or has less than a third of its life left. */
export function isDue(files: CertificateFiles, nowMs: number): boolean {
  const pair = findPair(files);
  if (!pair) return true;
  const { validFromDate: from, validToDate: to } = new X509Certificate(pair.cert);
  return to.getTime() - nowMs < (to.getTime() - from.getTime()) / 3;
}

/** Race: a reader between the two renames gets a pair that does not fit. It reads again after the second rename. */
function writePair({ certFile, keyFile }: CertificateFiles, { cert, key }: Pair): void {
  writeFileSync(`${keyFile}.next`, key, { mode: 0o600 });
  writeFileSync(`${certFile}.next`, cert);
  renameSync(`${keyFile}.next`, keyFile);
  renameSync(`${certFile}.next`, certFile);
}
