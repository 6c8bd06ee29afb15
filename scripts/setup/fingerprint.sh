# shellcheck shell=bash
# Computes one hash over all inputs of set-up: this checkout, QEMU, the CPU, and the certificates that guests trust.

# chosen_cpu_model DATA_DIR: prints the CPU model of guests: the choice of now, else of the last set-up.
chosen_cpu_model() {
  local choice=${VIV_CPU_MODEL:-}
  [ -n "$choice" ] || choice=$(cat "$1/cpu-model" 2>/dev/null) || choice=host
  echo "$choice"
}

# guest_cpu DATA_DIR [CPUINFO KVM]: the chosen model, whether emulation is asked for, and what guests see of the host's CPU:
# with KVM all of it, or with a named model its vendor. Emulated CPUs are the same on every host.
# The device counts even if the caller may not open it: set-up must not run again for a caller without that right.
guest_cpu() {
  local model info=${2:-/proc/cpuinfo} kvm=${3:-/dev/kvm} seen='vendor_id|cpu family|model|model name'
  model=$(chosen_cpu_model "$1")
  echo "$model"
  # Emulation that nobody asks for any more is not kept.
  [ "${VIV_ACCEL:-auto}" != tcg ] || echo tcg
  [ "$model" = host ] || seen=vendor_id
  [ -e "$kvm" ] || return 0
  sed '/^$/q' "$info" | grep -E "^($seen)[[:space:]]*:"
  # A baseline does not load where one of these is gone.
  [ "$model" != host ] || sed -n '/^flags/{p;q}' "$info" | tr ' ' '\n' | grep -Fx -f packages/node/src/qemu/guest-features.txt
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
    sha256sum setup package-lock.json packages/node/src/qemu/{arguments,cpu-model,host-cpu}.ts packages/node/src/qemu/guest-features.txt packages/node/src/snapshots/{bake,manifest,page-sums,file-crc}.ts packages/contract/src/api/limits.ts
    find scripts/setup images guest -name target -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    guest_certificates "$1" | sha256sum
    stat -L -c '%s %Y' "$(command -v qemu-system-x86_64)"
    guest_cpu "$1"
  } | sha256sum | cut -c1-64
}
