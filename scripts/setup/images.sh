# shellcheck shell=bash
# Builds the guest images: kernel, initramfs, base template and baseline. Each is built once into the cache, named by
# the hash of its inputs, and copied into the pool, so that a second clone or another pool takes seconds.

IMAGES_DIR=$DATA_DIR/pool/images

# put FILE TARGET: copies a file atomically, with reflinks where the filesystem has them. It is on disk before it has its
# name, so that a power cut leaves no empty one.
put() {
  mkdir -p "$(dirname "$2")"
  cp --reflink=auto --sparse=always "$1" "$2.part"
  sync "$2.part"
  mv -f "$2.part" "$2"
}

prepare_kernel() {
  local cached packed
  cached=$CACHE_DIR/kernel/$(hash_of images/build-kernel)
  if [ ! -e "$cached/release" ]; then
    progress "fetching Debian's cloud kernel"
    # It has its name only once it is on disk: the file `release` in it says that it is whole.
    rm -rf "$cached" "$cached.part"
    images/build-kernel "$cached.part"
    sync -f "$cached.part"
    mv "$cached.part" "$cached"
  fi
  put_when_different "$cached/vmlinuz" "$IMAGES_DIR/kernel/vmlinuz"
  packed=$CACHE_DIR/initramfs/$(hash_of images/build-kernel images/build-initramfs "$AGENT_BINARY").cpio.gz
  pack_initramfs "$cached/modules" "$AGENT_BINARY" "$packed"
  put_when_different "$packed" "$IMAGES_DIR/kernel/initramfs.cpio.gz"
}

# pack_initramfs MODULES PROGRAM OUT [GIFTS]
pack_initramfs() {
  [ ! -e "$3" ] || return 0
  progress "packing $(basename "$2") and its modules into an initramfs"
  mkdir -p "$(dirname "$3")"
  images/build-initramfs "$1" "$2" "$3.part" "${@:4}"
  sync "$3.part"
  mv "$3.part" "$3"
}

put_when_different() {
  cmp -s "$1" "$2" && return
  progress "installing $(basename "$2")"
  put "$1" "$2"
}

# Collects the certificates that guests trust besides Debian's: behind a proxy that inspects TLS, pip and npm need its
# certificate. The choice is stored, because ./viv runs set-up without options.
collect_certificates() {
  local choice
  choice=$(chosen_certificates "$DATA_DIR")
  mkdir -p "$CACHE_DIR/certificates" "$DATA_DIR"
  guest_certificates "$DATA_DIR" >"$CERTIFICATES" || : >"$CERTIFICATES"
  case "$choice" in
    auto | none) rm -f "$DATA_DIR/ca-bundle.pem" ;;
    *)
      grep -qs 'BEGIN CERTIFICATE' "$CERTIFICATES" ||
        fail "--ca-bundle $choice holds no certificate" "auto, none, or a PEM file" "check the path and that the file is PEM, not DER"
      install -m 0644 "$CERTIFICATES" "$DATA_DIR/ca-bundle.pem"
      ;;
  esac
  echo "$choice" >"$DATA_DIR/ca-bundle"
}
CERTIFICATES=$CACHE_DIR/certificates/$$.pem

prepare_base() {
  local base version target
  collect_certificates
  base=$CACHE_DIR/base/$(cat <(hash_of images/base) <(sha256sum <"$CERTIFICATES") | sha256sum | cut -c1-16)
  build_base "$base"
  rm -f "$CERTIFICATES"
  version=$(cat "$base/built_on")-$(base_identity "$base")
  target=$IMAGES_DIR/templates/base/$version
  [ -e "$target/template.json" ] || install_base "$base" "$target"
  describe_base "$base" "$target"
  [ "$(readlink "$IMAGES_DIR/templates/base/next")" = "$version" ] || point next "$version"
}

build_base() {
  local started
  [ ! -e "$1/content_hash" ] || return 0
  started=$(date -u +%Y.%m.%d)
  progress "installing Debian 13, Python, Node and Bun into a disk; one to five minutes"
  mkdir -p "$1"
  images/base/build "$1/root.ext4" "$CERTIFICATES"
  echo "$started" >"$1/built_on"
  date -u +%Y-%m-%dT%H:%M:%SZ >"$1/built_at"
  sha256sum "$1/root.ext4" | cut -d' ' -f1 >"$1/content_hash.part"
  sync "$1/root.ext4" "$1/built_on" "$1/built_at" "$1/content_hash.part" "$1"
  mv "$1/content_hash.part" "$1/content_hash"
}

# A template version includes a hash of all inputs of its baseline, so that a published version never changes.
base_identity() {
  cat "$1/content_hash" <(sha256sum "$IMAGES_DIR/kernel/vmlinuz" "$IMAGES_DIR/kernel/initramfs.cpio.gz" | cut -d' ' -f1) \
    <(bake_inputs) | sha256sum | cut -c1-8
}

install_base() {
  progress "installing version $(basename "$2")"
  put "$1/root.ext4" "$2/root.ext4"
  chmod 0444 "$2/root.ext4"
}

# describe_base BASE TARGET: writes template.json, the origin of this version. It is written last, as only that makes the
# folder a version, and rewritten if an older set-up wrote it differently.
describe_base() {
  {
    printf '{"name":"base","version":"%s","content_hash":"sha256:%s","built_at":"%s"' \
      "$(basename "$2")" "$(cat "$1/content_hash")" "$(cat "$1/built_at")"
    disk_origin "$2/root.ext4"
    # on-demand: rebuilt by ./setup --refresh.
    printf ',"cadence":"on-demand","category":"base"}\n'
  } >"$2/template.json.part"
  sync "$2/template.json.part"
  cmp -s "$2/template.json.part" "$2/template.json" || mv "$2/template.json.part" "$2/template.json"
  rm -f "$2/template.json.part"
}

# Origin of the disk, read from its own files: the release, and a hash of all packages with their versions.
disk_origin() {
  local system release packages
  system=$(disk_file "$1" /usr/lib/os-release | sed -n 's/^ID=//p')
  release=$(disk_file "$1" /usr/lib/os-release | sed -n 's/^VERSION_CODENAME=//p')
  [ -z "$system" ] || [ -z "$release" ] || printf ',"base_image_ref":"%s/%s"' "$system" "$release"
  packages=$(disk_file "$1" /var/lib/dpkg/status | wc -c)
  [ "$packages" -eq 0 ] ||
    printf ',"base_image_digest":"sha256:%s"' "$(disk_file "$1" /var/lib/dpkg/status | sha256sum | cut -d' ' -f1)"
}

# disk_file DISK FILE: prints a file of a disk image; nothing if it does not exist.
disk_file() {
  debugfs -R "cat $2" "$1" 2>/dev/null
}

# point NAME VERSION: makes the link NAME lead to a version, atomically.
point() {
  ln -sfn "$2" "$IMAGES_DIR/templates/base/$1.part"
  mv -T "$IMAGES_DIR/templates/base/$1.part" "$IMAGES_DIR/templates/base/$1"
}

# Inputs of a baseline: it loads only with the same QEMU build, devices and CPU.
bake_inputs() {
  cat <(qemu-system-x86_64 --version) <(sha256sum packages/node/src/qemu/{arguments,cpu-model,host-cpu}.ts packages/node/src/qemu/guest-features.txt packages/node/src/snapshots/{bake,manifest,page-sums,file-crc}.ts packages/contract/src/api/limits.ts) \
    <(stat -L -c '%s %Y' "$(command -v qemu-system-x86_64)") \
    <(guest_cpu "$DATA_DIR")
}

# Bakes the baseline of the next version, which then becomes the current one; until then services use the one before.
bake_baseline() {
  local version baseline model
  model=$(chosen_cpu_model "$DATA_DIR")
  version=$(readlink "$IMAGES_DIR/templates/base/next")
  baseline=$IMAGES_DIR/templates/base/$version/$BASELINE_SIZE/manifest.json
  if [ ! -e "$baseline" ]; then
    progress "booting the template once and keeping its memory; a minute or two without KVM"
    VIV_CPU_MODEL=$model node_modules/.bin/node packages/node/src/bake.ts --data-dir "$DATA_DIR" --images-dir "$IMAGES_DIR" \
      --template base --version "$version" --size "$BASELINE_SIZE"
    [ -e "$baseline" ] || fail "baking ended without a baseline" "$baseline" "read $SETUP_LOG"
  fi
  # Stored, because ./viv runs set-up without it.
  echo "$model" >"$DATA_DIR/cpu-model"
  [ "$(readlink "$IMAGES_DIR/templates/base/current")" = "$version" ] || point current "$version"
  announce_emulation "$baseline"
}

# announce_emulation MANIFEST: emulation is never silent, least of all where the host has KVM.
announce_emulation() {
  grep -q '"accelerator": "tcg"' "$1" || return 0
  if [ "${VIV_ACCEL:-auto}" = tcg ]; then
    progress "machines are emulated, as VIV_ACCEL=tcg asks: isolated as fully, 10 to 100 times slower"
  elif [ -e /dev/kvm ]; then
    progress "WARNING: /dev/kvm opens, but no guest boots on it. Machines are emulated: isolated as fully, 10 to 100 times slower. See ./viv doctor"
  else
    progress "WARNING: this host has no /dev/kvm. Machines are emulated: isolated as fully, 10 to 100 times slower. See ./viv doctor"
  fi
}
readonly BASELINE_SIZE=small
