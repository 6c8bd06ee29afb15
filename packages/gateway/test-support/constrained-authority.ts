/** Makes an authority for tests that may sign for one name alone (name constraints, RFC 5280 4.2.1.10). */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KeyPair } from "@vivarium/kit/certificates";

export function makeConstrainedAuthority(permitted: string): KeyPair {
  const folder = mkdtempSync(join(tmpdir(), "authority-"));
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const constraint = `nameConstraints=critical,permitted;DNS:${permitted}`;
  try {
    execFileSync(
      "openssl",
      [
        ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"],
        ...["-subj", "/CN=constrained authority", "-addext", constraint, "-out", cert, "-keyout", key],
      ],
      { stdio: "ignore" },
    );
    return { certificatePem: readFileSync(cert, "utf8"), keyPem: readFileSync(key, "utf8") };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
