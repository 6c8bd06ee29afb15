# shellcheck shell=bash
# One hash over everything in this checkout that set-up builds from, and over the certificates that guests get.

# With KVM a guest has the host's own CPU, and what was saved on another one does not load. Emulated ones are all alike.
guest_cpu() {
  [ ! -w /dev/kvm ] || grep -m 4 -E '^(vendor_id|cpu family|model|model name)[[:space:]]*:' /proc/cpuinfo
}

fingerprint() {
  {
    sha256sum setup package-lock.json packages/node/src/qemu/{arguments,host-cpu}.ts packages/node/src/snapshots/{bake,manifest,page-sums}.ts
    find scripts/setup images guest -name target -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    images/local-certificates | sha256sum
    stat -L -c '%s %Y' "$(command -v qemu-system-x86_64)"
    guest_cpu
  } | sha256sum | cut -c1-64
}
