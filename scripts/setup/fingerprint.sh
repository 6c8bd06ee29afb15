# shellcheck shell=bash
# One hash over everything in this checkout that set-up builds from, and over the certificates that guests get.

fingerprint() {
  {
    sha256sum setup package-lock.json packages/node/src/qemu/arguments.ts packages/node/src/snapshots/{bake,manifest,page-sums}.ts
    find scripts/setup images guest -name target -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    images/local-certificates | sha256sum
  } | sha256sum | cut -c1-64
}
