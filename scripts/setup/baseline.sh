# shellcheck shell=bash
# Renews what machines start from for this host as it is at a boot, from what is here already: nothing is downloaded, installed or
# compiled. After an update of QEMU or a change of the CPU a baseline does not load any more.

# The kernel and the agent are those of this checkout if the cache has both, else those that are in the pool.
renew_kernel() {
  if [ -x "$AGENT_BINARY" ] && [ -e "$CACHE_DIR/kernel/$(hash_of images/build-kernel)/release" ]; then
    prepare_kernel
  fi
  [ -e "$IMAGES_DIR/kernel/initramfs.cpio.gz" ] ||
    fail "there is no guest kernel in $IMAGES_DIR/kernel, and none that fits in $CACHE_DIR" "one that ./setup has made" \
      "run ./setup --data-dir $DATA_DIR, which needs a network"
}
