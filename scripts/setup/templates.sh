# shellcheck shell=bash
# Makes the official templates besides base: those that are asked for, and with every later set-up those that are there.

# Free space that each takes while it is built, beside its disk in the cache and in the pool, and its baselines.
readonly TEMPLATE_FREE_GIB=6
# Medium has the memory for compilers and for larger tables.
readonly TEMPLATE_SIZES="small medium"

# wanted_templates ASKED: prints those of MORE_TEMPLATES that are asked for or there already.
wanted_templates() {
  local name
  for name in $MORE_TEMPLATES; do
    case " $1 " in
      *" $name "*) echo "$name" ;;
      *) ! has_template "$name" || echo "$name" ;;
    esac
  done
}

# check_template_space NAME…: those that are not there yet need disk space.
check_template_space() {
  local name place free needed=0
  for name in "$@"; do has_template "$name" || needed=$((needed + TEMPLATE_FREE_GIB)); done
  for place in "$DATA_DIR" "$CACHE_DIR"; do
    free=$(free_gib "$place")
    [ "$free" -ge "$needed" ] ||
      lack "$free GiB are free where $place lies" "at least $needed GiB, for the templates $*" "free some space, or ask for fewer templates"
  done
  stop_if_lacking
}

contents_of() {
  case "$1" in
    data) echo "base, NumPy, pandas, Matplotlib, SciPy, scikit-learn, Jupyter kernel" ;;
    build) echo "base, C, C++, Go, Rust, JDK" ;;
    image-builder) echo "Debian 13, buildah" ;;
  esac
}
