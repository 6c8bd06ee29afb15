# shellcheck shell=bash
# Makes the template image-builder, in which images of Dockerfiles are built: once it is wanted, and from then on with every set-up.

IMAGE_BUILDER_DIR=$IMAGES_DIR/templates/image-builder

# wants_image_builder ASKED: ASKED is yes or no.
wants_image_builder() {
  [ "$1" = yes ] || [ -e "$IMAGE_BUILDER_DIR/current" ]
}

prepare_image_builder() {
  local disk version target
  collect_certificates
  disk=$CACHE_DIR/image-builder/$(cat <(hash_of images/base/build images/image-builder) <(sha256sum <"$CERTIFICATES") | sha256sum | cut -c1-16)
  build_image_builder "$disk"
  rm -f "$CERTIFICATES"
  version=$(cat "$disk/built_on")-$(base_identity "$disk")
  target=$IMAGE_BUILDER_DIR/$version
  [ -e "$target/template.json" ] || install_base "$disk" "$target"
  # Written last, as only that makes the folder a version.
  describe_image_builder "$disk" "$target" >"$target/template.json.part"
  mv "$target/template.json.part" "$target/template.json"
  point_image_builder next "$version"
}

build_image_builder() {
  local started
  [ ! -e "$1/content_hash" ] || return 0
  started=$(date -u +%Y.%m.%d)
  progress "installing Debian 13 and buildah into a disk; one to five minutes"
  mkdir -p "$1"
  images/base/build "$1/root.ext4" "$CERTIFICATES" images/image-builder
  echo "$started" >"$1/built_on"
  date -u +%Y-%m-%dT%H:%M:%SZ >"$1/built_at"
  sync "$1/root.ext4"
  sha256sum "$1/root.ext4" | cut -d' ' -f1 >"$1/content_hash.part"
  mv "$1/content_hash.part" "$1/content_hash"
}

# describe_image_builder DISK TARGET: prints the origin of this version.
describe_image_builder() {
  printf '{"name":"image-builder","version":"%s","content_hash":"sha256:%s","built_at":"%s"' \
    "$(basename "$2")" "$(cat "$1/content_hash")" "$(cat "$1/built_at")"
  disk_origin "$2/root.ext4"
  printf ',"cadence":"on-demand","category":"build"}\n'
}

point_image_builder() {
  [ "$(readlink "$IMAGE_BUILDER_DIR/$1")" != "$2" ] || return 0
  ln -sfn "$2" "$IMAGE_BUILDER_DIR/$1.part"
  mv -T "$IMAGE_BUILDER_DIR/$1.part" "$IMAGE_BUILDER_DIR/$1"
}

bake_image_builder() {
  local version size
  version=$(readlink "$IMAGE_BUILDER_DIR/next")
  for size in $IMAGE_BUILDER_SIZES; do
    [ ! -e "$IMAGE_BUILDER_DIR/$version/$size/manifest.json" ] || continue
    progress "booting image-builder once in size $size and keeping its memory"
    VIV_CPU_MODEL=$(chosen_cpu_model "$DATA_DIR") node_modules/.bin/node packages/node/src/bake.ts --data-dir "$DATA_DIR" \
      --images-dir "$IMAGES_DIR" --template image-builder --version "$version" --size "$size"
  done
  point_image_builder current "$version"
}
# Medium has the memory for builds that compile.
readonly IMAGE_BUILDER_SIZES="small medium"
