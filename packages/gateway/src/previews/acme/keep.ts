/** Orders a certificate when there is none, and a new one when a third of its life is left. */
import { X509Certificate } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import type { Log } from "@vivarium/kit/log";
import { type CertificateFiles, findPair, type Pair } from "../certificate.ts";
import type { AcmeConfig } from "./order.ts";

/** Also the pause after a failure: authorities count failed orders and block clients that repeat them at once. */
const LOOK_EVERY_MS = 3600_000;

/** Begins at once and never throws: previews wait for their certificate, and nothing waits for previews. */
export function keepCertificate(
  { log }: { log: Log },
  { acme, files, nodeDomain }: { acme: AcmeConfig; files: CertificateFiles; nodeDomain: string },
): () => void {
  let isOrdering = false;
  const look = async () => {
    if (isOrdering || !isDue(files, Date.now())) return;
    isOrdering = true;
    try {
      // Loaded late: large, and needed on few hosts and few days.
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
  void look();
  const timer = setInterval(() => void look(), LOOK_EVERY_MS).unref();
  return () => clearInterval(timer);
}

/** A pair that cannot be used counts as missing. */
export function isDue(files: CertificateFiles, nowMs: number): boolean {
  const pair = findPair(files);
  if (!pair) return true;
  const { validFromDate: from, validToDate: to } = new X509Certificate(pair.cert);
  return to.getTime() - nowMs < (to.getTime() - from.getTime()) / 3;
}

/** A reader between the two renames finds a pair that does not fit, and reads again at the second. */
function writePair({ certFile, keyFile }: CertificateFiles, { cert, key }: Pair): void {
  writeFileSync(`${keyFile}.next`, key, { mode: 0o600 });
  writeFileSync(`${certFile}.next`, cert);
  renameSync(`${keyFile}.next`, keyFile);
  renameSync(`${certFile}.next`, certFile);
}
