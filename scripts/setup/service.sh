# shellcheck shell=bash
# Makes the service's system users and its storage pool.

# vivarium runs control plane and database, vivarium-gateway the gateway.
readonly SERVICE_USERS="vivarium vivarium-gateway"

make_service_users() {
  local user
  for user in $SERVICE_USERS; do
    ! getent passwd "$user" >/dev/null || continue
    progress "useradd $user"
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$user"
  done
}

prepare_pool() {
  if [ -d "$DATA_DIR/pool/images" ] && { [ ! -e "$DATA_DIR/pool.img" ] || mountpoint -q "$DATA_DIR/pool"; }; then
    return
  fi
  progress "making or mounting $DATA_DIR/pool"
  scripts/mount-pool "$DATA_DIR"
}
