# shellcheck shell=bash
# Builds what machines boot from that unpack container images: a program of their own, so that no other machine has its code,
# and what they give images that lack it: a shell, and the certificates that the base template trusts.

prepare_builder() {
  local kernel shell gifts packed
  kernel=$CACHE_DIR/kernel/$(hash_of images/build-kernel)
  shell=$CACHE_DIR/shell/$(hash_of images/build-shell)/sh
  if [ ! -e "$shell" ]; then
    progress "fetching Debian's static shell"
    images/build-shell "$shell"
  fi
  gifts=$CACHE_DIR/gifts
  rm -rf "$gifts"
  mkdir "$gifts"
  cp "$shell" "$gifts/sh"
  disk_file "$IMAGES_DIR/templates/base/next/root.ext4" /etc/ssl/certs/ca-certificates.crt >"$gifts/ca-certificates.crt"
  grep -q 'BEGIN CERTIFICATE' "$gifts/ca-certificates.crt" ||
    fail "the base template trusts no certificates" "/etc/ssl/certs/ca-certificates.crt on its disk" "build it anew: ./setup --refresh"
  packed=$CACHE_DIR/initramfs/$(cat <(hash_of images/build-kernel images/build-initramfs "$BUILDER_BINARY") \
    <(cat "$gifts"/*) | sha256sum | cut -c1-16).cpio.gz
  pack_initramfs "$kernel/modules" "$BUILDER_BINARY" "$packed" "$gifts"
  put_when_different "$packed" "$IMAGES_DIR/kernel/initramfs-builder.cpio.gz"
}
