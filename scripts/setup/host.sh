# shellcheck shell=bash
# Checks whether this machine can run the service at all, and says everything that it lacks at once.

readonly NEEDED_FREE_GIB=12

check_host() {
  [ "$(uname -s)" = Linux ] ||
    lack "this is $(uname -s)" "Linux: Debian 12, Debian 13 or Ubuntu 24.04" "use a machine, or a virtual one, with one of these"
  [ "$(uname -m)" = x86_64 ] ||
    lack "this machine's architecture is $(uname -m)" "x86_64, the one the guest images are built for" "use an x86_64 machine"
  check_distribution
  lack_data
  [ "$(id -u)" = 0 ] ||
    lack "you are $(id -un)" "root: set-up installs packages, mounts the storage pool and makes a system user" "run: sudo ./setup"
  check_disk_space
  stop_if_lacking
}

check_distribution() {
  local release=${VIV_OS_RELEASE:-/etc/os-release}
  # shellcheck disable=SC1090
  . "$release"
  case "$ID $VERSION_ID" in
    "debian 12" | "debian 13" | "ubuntu 24.04") ;;
    *)
      lack "this is ${PRETTY_NAME:-$ID}" "Debian 12, Debian 13 or Ubuntu 24.04" \
        "use one of these; on another system install what scripts/setup/packages.sh lists and set VIV_OS_RELEASE to a file saying ID=debian VERSION_ID=13"
      ;;
  esac
}

# A directory below a disk that is not mounted would be filled.
check_data() {
  lack_data
  stop_if_lacking
}

lack_data() {
  local refusal
  refusal=$(scripts/require-data "$DATA_DIR" 2>&1) ||
    lack "$(sed -n '1s/^require-data: //p' <<<"$refusal")" "its data, where it was" "$(sed -n '2s/^Nothing was changed. //p' <<<"$refusal")"
}

check_disk_space() {
  local free
  # A finished build needs no disk space a second time.
  [ ! -e "$DATA_DIR/setup.stamp" ] || return 0
  free=$(free_gib "$DATA_DIR")
  [ "$free" -ge "$NEEDED_FREE_GIB" ] ||
    lack "$free GiB are free where $DATA_DIR lies" "at least $NEEDED_FREE_GIB GiB" "free some space, or choose another place with --data-dir"
}

# free_gib PLACE: the directory may be made later: what counts is the filesystem below it.
free_gib() {
  local place=$1
  while [ ! -d "$place" ]; do place=$(dirname "$place"); done
  echo $(($(df --output=avail -B1 "$place" | tail -n 1) >> 30))
}
