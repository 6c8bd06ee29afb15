# shellcheck shell=bash
# What the service finds on this machine: its system user and its storage pool.

readonly SERVICE_USER=vivarium

make_service_user() {
  ! getent passwd "$SERVICE_USER" >/dev/null || return 0
  progress "useradd $SERVICE_USER"
  useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$SERVICE_USER"
}

prepare_pool() {
  if [ -d "$DATA_DIR/pool/images" ] && { [ ! -e "$DATA_DIR/pool.img" ] || mountpoint -q "$DATA_DIR/pool"; }; then
    return
  fi
  progress "making or mounting $DATA_DIR/pool"
  scripts/mount-pool "$DATA_DIR"
}
