/** Orders a certificate when there is none, and a new one when a third of its life is left. */
import { X509Certificate } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import type { Log } from "@vivarium/kit/log";
import { type CertificateFiles, type Pair, readPair } from "../certificate.ts";
import type { AcmeConfig } from "./order.ts";

/** Also the pause after a failure: authorities count failed orders and block clients that repeat them at once. */
const LOOK_EVERY_MS = 3600_000;

interface Wanted {
  acme: AcmeConfig;
  files: CertificateFiles;
  nodeDomain: string;
}

/** Begins at once and never throws: previews wait for their certificate, and nothing waits for previews. */
export function keepCertificate({ log }: { log: Log }, wanted: Wanted): () => void {
  let isOrdering = false;
  const look = async () => {
    if (isOrdering || !isDue(wanted.files, Date.now())) return;
    isOrdering = true;
    try {
      // Loaded late: large, and needed on few hosts and few days.
      const { orderCertificate } = await import("./order.ts");
      writePair(wanted.files, await orderCertificate(wanted.acme, wanted.nodeDomain));
      log.info({ domain: `*.${wanted.nodeDomain}` }, "previews have a new certificate");
    } catch (error) {
      log.error(
        { err: error, domain: `*.${wanted.nodeDomain}` },
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
  try {
    const { validFrom, validTo } = new X509Certificate(readPair(files).cert);
    const [from, to] = [Date.parse(validFrom), Date.parse(validTo)];
    return to - nowMs < (to - from) / 3;
  } catch {
    return true;
  }
}

/** A reader between the two renames finds a pair that does not fit, and reads again at the second. */
function writePair({ certFile, keyFile }: CertificateFiles, { cert, key }: Pair): void {
  writeFileSync(`${keyFile}.next`, key, { mode: 0o600 });
  writeFileSync(`${certFile}.next`, cert);
  renameSync(`${keyFile}.next`, keyFile);
  renameSync(`${certFile}.next`, certFile);
}
