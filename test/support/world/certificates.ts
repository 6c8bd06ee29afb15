/** Makes a certificate authority for the test, and one key pair for all names of the world. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ALL } from "./addresses.ts";
import type { Pair } from "./web-servers.ts";

const DOMAINS = [
  "example.com",
  "example.net",
  "example.org",
  "b.example.com",
  "notexample.com",
  "evil-example.com",
  // Stand-ins of APIs that the guide names.
  "github.com",
  "openai.com",
  "npmjs.org",
];
const KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

export interface Certificates extends Pair {
  caFile: string;
}

export function makeCertificates(folder: string): Certificates {
  const at = (name: string) => join(folder, name);
  const names = DOMAINS.flatMap((domain) => [`DNS:${domain}`, `DNS:*.${domain}`]);
  const addresses = ALL.map((address) => `IP:${address}`);
  writeFileSync(
    at("leaf.cnf"),
    [
      "basicConstraints=critical,CA:FALSE",
      "keyUsage=critical,digitalSignature",
      "extendedKeyUsage=serverAuth",
      "subjectKeyIdentifier=hash",
      "authorityKeyIdentifier=keyid:always",
      `subjectAltName=${[...names, ...addresses].join(",")}`,
    ].join("\n"),
  );
  const openssl = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  openssl(
    ...["req", "-x509", ...KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=World"],
    ...["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
  );
  openssl("req", "-new", ...KEY, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=world");
  openssl(
    ...["x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
    ...["-days", "30", "-extfile", "leaf.cnf", "-out", "leaf.pem"],
  );
  return { caFile: at("ca.pem"), certFile: at("leaf.pem"), keyFile: at("leaf.key") };
}
