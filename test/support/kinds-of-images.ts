/** Images as distributions and build tools make them, in small: with a shell and tools, with one shell, with one program. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MadeImage } from "../../packages/oci/test-support/image.ts";
import { IMAGES } from "./service.ts";
import { makeImageOf, makeSmallImage, putTool } from "./small-image.ts";

export interface KindOfImage {
  image: () => MadeImage;
  /** The parts that the builder gives it. */
  given: ("shell" | "certificates")[];
  /** Number of the user in its sessions. */
  uid: number;
  /** A program of the image, and what it prints. */
  program: { argv: string[]; prints: string };
  /** First line of its bundle of certificates, and where that is. */
  bundle: { path: string; begins: string };
}

const OWN_BUNDLE = "# the image's own\n";
const CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt";
const PROGRAM = `
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) { printf("%s runs as %d\\n", argv[argc - 1], getuid()); return 0; }
`;

/** The two that differ most from a usual image come first: every run has them. */
export const KINDS: Record<string, KindOfImage> = {
  "from scratch": {
    image: () => makeImageOf([putScratch]),
    given: ["shell", "certificates"],
    uid: 999,
    program: { argv: ["/app", "it"], prints: "it runs as 999" },
    bundle: { path: CERTIFICATES, begins: "-----BEGIN CERTIFICATE-----" },
  },
  "like Alpine, with the number of the user taken": {
    image: () => makeImageOf([putAlpine]),
    given: [],
    uid: 998,
    program: { argv: ["/bin/busybox", "-c", "echo $UID"], prints: "998" },
    bundle: { path: "/etc/ssl/cert.pem", begins: "# the image's own" },
  },
  "like a distroless one": {
    image: () => makeImageOf([putDistroless]),
    given: ["shell"],
    uid: 999,
    program: { argv: ["/usr/bin/cat", "/etc/os-release"], prints: "ID=distroless" },
    bundle: { path: CERTIFICATES, begins: "# the image's own" },
  },
  "like Debian": {
    image: () => makeSmallImage("debian"),
    given: ["certificates"],
    uid: 999,
    program: { argv: ["cat", "/srv/hello"], prints: "hello from debian" },
    bundle: { path: CERTIFICATES, begins: "-----BEGIN CERTIFICATE-----" },
  },
};

/** One static program under several names, of which /bin/sh is a link to it. */
function putAlpine(root: string): void {
  for (const folder of ["bin", "etc/ssl"]) mkdirSync(join(root, folder), { recursive: true });
  writeFileSync(join(root, "bin/busybox"), staticShell());
  chmodSync(join(root, "bin/busybox"), 0o755);
  symlinkSync("/bin/busybox", join(root, "bin/sh"));
  writeFileSync(join(root, "etc/ssl/cert.pem"), OWN_BUNDLE);
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\napp:x:999:999::/app:/bin/sh\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\napp:x:999:\n");
}

function putDistroless(root: string): void {
  for (const folder of ["usr/bin", "usr/lib", "usr/lib64", "etc/ssl/certs"])
    mkdirSync(join(root, folder), { recursive: true });
  for (const name of ["bin", "lib", "lib64"]) symlinkSync(`usr/${name}`, join(root, name));
  putTool(root, "cat");
  writeFileSync(join(root, "etc/os-release"), "ID=distroless\n");
  writeFileSync(join(root, CERTIFICATES), OWN_BUNDLE);
  writeFileSync(join(root, "etc/passwd"), "nonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n");
}

function putScratch(root: string): void {
  execFileSync("gcc", ["-static", "-Os", "-x", "c", "-", "-o", join(root, "app")], { input: PROGRAM });
}

/** The shell that set-up fetches for images without one. */
function staticShell(): Buffer {
  const packed = readFileSync(join(IMAGES, "kernel/initramfs-builder.cpio.gz"));
  const archive = execFileSync("gzip", ["-dc"], { input: packed, maxBuffer: 2 ** 28 });
  const unpack = ["--quiet", "-i", "--to-stdout", "gifts/sh"];
  return execFileSync("cpio", unpack, { input: archive, maxBuffer: 2 ** 28 });
}
