# shellcheck shell=bash
# Computes one hash over all inputs of set-up: this checkout, QEMU, the CPU, and the certificates that guests trust.

# The host's CPU, if guests have it: with KVM a state saved on another CPU does not load; emulated CPUs are all alike.
# The device counts even if the caller may not open it: set-up must not run again for a caller without that right.
guest_cpu() {
  [ ! -e /dev/kvm ] || grep -m 4 -E '^(vendor_id|cpu family|model|model name)[[:space:]]*:' /proc/cpuinfo
}

# chosen_certificates DATA_DIR: prints auto, none or a file: the choice of now, else of the last set-up.
chosen_certificates() {
  local choice=${CA_BUNDLE:-${VIV_CA_BUNDLE:-}}
  [ -n "$choice" ] || choice=$(cat "$1/ca-bundle" 2>/dev/null) || choice=auto
  echo "$choice"
}

# guest_certificates DATA_DIR: prints the certificates that guests trust besides Debian's, as PEM.
guest_certificates() {
  local choice
  choice=$(chosen_certificates "$1")
  case "$choice" in
    none) ;;
    auto) images/local-certificates ;;
    # If the file of an earlier choice is gone, its copy is used.
    *) cat "$choice" 2>/dev/null || { [ -z "${CA_BUNDLE:-${VIV_CA_BUNDLE:-}}" ] && cat "$1/ca-bundle.pem"; } ;;
  esac
}

# fingerprint DATA_DIR
fingerprint() {
  {
    sha256sum setup package-lock.json packages/node/src/qemu/{arguments,host-cpu}.ts packages/node/src/snapshots/{bake,manifest,page-sums,file-crc}.ts packages/contract/src/api/limits.ts
    find scripts/setup images guest -name target -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    guest_certificates "$1" | sha256sum
    stat -L -c '%s %Y' "$(command -v qemu-system-x86_64)"
    guest_cpu
  } | sha256sum | cut -c1-64
}
