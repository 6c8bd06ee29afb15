# shellcheck shell=bash
# Builds the guest images: kernel, initramfs, and the official templates with their baselines. Each is built once into the
# cache, named by the hash of its inputs, and copied into the pool, so that a second clone or another pool takes seconds.
#
# One set of functions makes every official template from its recipe, the folder images/NAME. A recipe is whole, as that of
# base is, or it adds to that of base: added-packages.txt, added-files/ and added-configure come after base's own.
#
#   make_next NAME            its disk in the cache, built if it is not there, and a version of it, the link `next`, in the pool
#   renew_template NAME       the same of what is here: the disk in the cache, or else that of its last version; without a network
#   bake_template NAME SIZE…  the baselines of `next`, which `current` leads to then
#   has_template NAME         whether services use it: it has a current version
#   disk_folder NAME          prints the folder of its disk in the cache; collect_certificates comes before
#   build_disk NAME FOLDER    the disk: root.ext4, built_on, built_at and, last, content_hash

IMAGES_DIR=$DATA_DIR/pool/images
TEMPLATES_DIR=$IMAGES_DIR/templates

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

make_next() {
  local disk
  collect_certificates
  disk=$(disk_folder "$1")
  build_disk "$1" "$disk"
  rm -f "$CERTIFICATES"
  install_next "$1" "$disk"
}

renew_template() {
  local disk last
  collect_certificates
  disk=$(disk_folder "$1")
  rm -f "$CERTIFICATES"
  if [ ! -e "$disk/content_hash" ]; then
    last=$(readlink "$TEMPLATES_DIR/$1/next" || readlink "$TEMPLATES_DIR/$1/current" || true)
    [ -n "$last" ] && [ -e "$TEMPLATES_DIR/$1/$last/template.json" ] ||
      fail "there is no template $1 in $TEMPLATES_DIR, and none that fits in $CACHE_DIR" "one that ./setup has made" \
        "run ./setup --data-dir $DATA_DIR, which needs a network"
    disk=$CACHE_DIR/renewed/$1
    take_disk "$TEMPLATES_DIR/$1/$last" "$disk"
  fi
  install_next "$1" "$disk"
  rm -rf "$CACHE_DIR/renewed"
}

# take_disk VERSION FOLDER: makes a folder as build_disk does, of the disk of a version in the pool.
take_disk() {
  local last
  last=$(basename "$1")
  rm -rf "$2"
  mkdir -p "$2"
  ln -s "$1/root.ext4" "$2/root.ext4"
  echo "${last%-*}" >"$2/built_on"
  json_value built_at "$1/template.json" >"$2/built_at"
  json_value content_hash "$1/template.json" | sed 's/^sha256://' >"$2/content_hash"
}

# json_value NAME FILE: prints a text of a file that set-up has written, which has no escapes.
json_value() {
  sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"
}

has_template() {
  [ -e "$TEMPLATES_DIR/$1/current" ]
}

disk_folder() {
  local place=$CACHE_DIR/official-templates/$1
  [ "$1" != base ] || place=$CACHE_DIR/base
  echo "$place/$(cat <(recipe_hash "$1") <(sha256sum <"$CERTIFICATES") | sha256sum | cut -c1-16)"
}

recipe_hash() {
  if [ "$1" = base ]; then
    hash_of images/base
  elif adds_to_base "$1"; then
    hash_of images/base "images/$1"
  else
    hash_of images/base/build "images/$1"
  fi
}

adds_to_base() {
  [ -e "images/$1/added-packages.txt" ]
}

build_disk() {
  local started recipe
  [ ! -e "$2/content_hash" ] || return 0
  started=$(date -u +%Y.%m.%d)
  progress "installing the packages of $1 into a disk; one to ten minutes"
  mkdir -p "$2"
  recipe=$CACHE_DIR/recipe/$1
  write_recipe "$1" "$recipe"
  (
    ! adds_to_base "$1" || make_manual_folder
    "$recipe/build" "$2/root.ext4" "$CERTIFICATES"
  )
  rm -rf "$CACHE_DIR/recipe"
  echo "$started" >"$2/built_on"
  date -u +%Y-%m-%dT%H:%M:%SZ >"$2/built_at"
  sha256sum "$2/root.ext4" | cut -d' ' -f1 >"$2/content_hash.part"
  sync "$2/root.ext4" "$2/built_on" "$2/built_at" "$2/content_hash.part" "$2"
  mv "$2/content_hash.part" "$2/content_hash"
}

# write_recipe NAME FOLDER: the whole recipe, with base's program that follows the recipe beside it.
write_recipe() {
  rm -rf "$2"
  mkdir -p "$2"
  if adds_to_base "$1"; then
    cp -r images/base/. "$2/"
    cat "images/$1/added-packages.txt" >>"$2/packages.txt"
    [ ! -e "images/$1/added-configure" ] || cat "images/$1/added-configure" >>"$2/configure"
    [ ! -d "images/$1/added-files" ] || cp -r "images/$1/added-files/." "$2/files/"
  else
    cp -r "images/$1/." "$2/"
    cp images/base/build "$2/build"
  fi
}

# Packages that base lacks may link pages of the manual, which are left out; their scripts fail without the folder. Java's does.
# The function takes the program's place only for the recipe: set-up itself looks for the program.
make_manual_folder() {
  mmdebstrap() {
    # shellcheck disable=SC2016
    command mmdebstrap --essential-hook='mkdir -p "$1/usr/share/man/man1"' "$@"
  }
  export -f mmdebstrap
}

# A template version includes a hash of all inputs of its baseline, so that a published version never changes.
template_identity() {
  cat "$1/content_hash" <(sha256sum "$IMAGES_DIR/kernel/vmlinuz" "$IMAGES_DIR/kernel/initramfs.cpio.gz" | cut -d' ' -f1) \
    <(bake_inputs) | sha256sum | cut -c1-8
}

# install_next NAME DISK
install_next() {
  local version target
  version=$(cat "$2/built_on")-$(template_identity "$2")
  target=$TEMPLATES_DIR/$1/$version
  [ -e "$target/template.json" ] || install_disk "$2" "$target"
  describe_template "$1" "$2" "$target"
  point "$1" next "$version"
}

install_disk() {
  progress "installing version $(basename "$2")"
  put "$1/root.ext4" "$2/root.ext4"
  chmod 0444 "$2/root.ext4"
}

# describe_template NAME DISK TARGET: writes template.json, the origin of this version. It is written last, as only that makes
# the folder a version, and rewritten if an older set-up wrote it differently.
describe_template() {
  {
    printf '{"name":"%s","version":"%s","content_hash":"sha256:%s","built_at":"%s"' \
      "$1" "$(basename "$3")" "$(cat "$2/content_hash")" "$(cat "$2/built_at")"
    disk_origin "$3/root.ext4"
    # on-demand: rebuilt by ./setup --refresh.
    printf ',"cadence":"on-demand","category":"%s"}\n' "$1"
  } >"$3/template.json.part"
  sync "$3/template.json.part"
  cmp -s "$3/template.json.part" "$3/template.json" || mv "$3/template.json.part" "$3/template.json"
  rm -f "$3/template.json.part"
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

# point NAME LINK VERSION: makes a template's link lead to a version, atomically.
point() {
  local dir=$TEMPLATES_DIR/$1
  [ "$(readlink "$dir/$2")" != "$3" ] || return 0
  ln -sfn "$3" "$dir/$2.part"
  mv -T "$dir/$2.part" "$dir/$2"
}

# Inputs of a baseline: it loads only with the same QEMU build, devices and CPU.
bake_inputs() {
  cat <(qemu-system-x86_64 --version) <(sha256sum packages/node/src/qemu/{arguments,cpu-model,host-cpu}.ts packages/node/src/qemu/guest-features.txt packages/node/src/snapshots/{bake,manifest,page-sums,file-crc}.ts packages/contract/src/api/limits.ts) \
    <(stat -L -c '%s %Y' "$(command -v qemu-system-x86_64)") \
    <(guest_cpu "$DATA_DIR")
}

# Services use the version before until the new one has all its baselines.
bake_template() {
  local name=$1 version model size
  model=$(chosen_cpu_model "$DATA_DIR")
  version=$(readlink "$TEMPLATES_DIR/$name/next")
  for size in "${@:2}"; do bake_size "$name" "$version" "$size" "$model"; done
  # Stored, because ./viv runs set-up without it.
  echo "$model" >"$DATA_DIR/cpu-model"
  point "$name" current "$version"
}

# bake_size NAME VERSION SIZE MODEL
bake_size() {
  local baseline=$TEMPLATES_DIR/$1/$2/$3/manifest.json
  [ ! -e "$baseline" ] || return 0
  progress "booting $1 once in size $3 and keeping its memory; a minute or two without KVM"
  VIV_CPU_MODEL=$4 node_modules/.bin/node packages/node/src/bake.ts --data-dir "$DATA_DIR" --images-dir "$IMAGES_DIR" \
    --template "$1" --version "$2" --size "$3"
  [ -e "$baseline" ] || fail "baking ended without a baseline" "$baseline" "read $SETUP_LOG"
}

bake_base() {
  bake_template base "$BASELINE_SIZE"
  announce_emulation "$TEMPLATES_DIR/base/current/$BASELINE_SIZE/manifest.json"
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
