# shellcheck shell=bash
# Renews the baseline for this host as it is at a boot, from what is here already: nothing is downloaded, installed or
# compiled. After an update of QEMU or a change of the CPU a baseline does not load any more.

# Exit code of a step of ./setup that would have to build or fetch something.
readonly NOT_HERE=75

# The kernel and the agent are those of this checkout if the cache has both, else those that are in the pool.
renew_kernel() {
  if [ -x "$AGENT_BINARY" ] && [ -x "$BUILDER_BINARY" ] && [ -e "$CACHE_DIR/kernel/$(hash_of images/build-kernel)/release" ]; then
    prepare_kernel
  fi
  [ -e "$IMAGES_DIR/kernel/initramfs.cpio.gz" ] || lack_image "guest kernel" "$IMAGES_DIR/kernel"
}

# The base template of this checkout and of today's certificates if the cache has it, else the last one of the pool.
renew_base() {
  local status
  set +e
  (
    set -e
    build_base() { [ -e "$1/content_hash" ] || exit "$NOT_HERE"; }
    prepare_base
  )
  status=$?
  set -e
  rm -f "$CERTIFICATES"
  if [ "$status" -eq "$NOT_HERE" ]; then
    renew_base_in_pool
  else
    return "$status"
  fi
}

# Makes a version for this host out of the last one in the pool, whose disk stays as it is.
renew_base_in_pool() {
  local last part version templates=$IMAGES_DIR/templates/base
  last=$(readlink "$templates/next" || readlink "$templates/current" || true)
  [ -n "$last" ] && [ -e "$templates/$last/template.json" ] || lack_image "base template" "$templates"
  part=$CACHE_DIR/base/renewed
  rm -rf "$part"
  mkdir -p "$part"
  ln -s "$templates/$last/root.ext4" "$part/root.ext4"
  json_value content_hash "$templates/$last/template.json" | sed 's/^sha256://' >"$part/content_hash"
  json_value built_at "$templates/$last/template.json" >"$part/built_at"
  version=${last%-*}-$(base_identity "$part")
  if [ ! -e "$templates/$version/template.json" ]; then
    install_base "$part" "$templates/$version"
    describe_base "$part" "$templates/$version"
  fi
  rm -rf "$part"
  [ "$(readlink "$templates/next")" = "$version" ] || point next "$version"
}

# lack_image WHAT PLACE
lack_image() {
  fail "there is no $1 in $2, and none that fits in $CACHE_DIR" "one that ./setup has made" \
    "run ./setup --data-dir $DATA_DIR, which needs a network"
}

# json_value NAME FILE: prints a text of a file that set-up has written, which has no escapes.
json_value() {
  sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"
}
