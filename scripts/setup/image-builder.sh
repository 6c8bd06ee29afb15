# shellcheck shell=bash
# Makes the template image-builder, in which images of Dockerfiles are built: once it is wanted, and from then on with every set-up.

# Medium has the memory for builds that compile.
readonly IMAGE_BUILDER_SIZES="small medium"

# wants_image_builder ASKED: ASKED is yes or no.
wants_image_builder() {
  [ "$1" = yes ] || has_template image-builder
}

bake_image_builder() {
  # shellcheck disable=SC2086
  bake_template image-builder $IMAGE_BUILDER_SIZES
}
