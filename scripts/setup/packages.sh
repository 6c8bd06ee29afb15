# shellcheck shell=bash
# Installs missing system packages. Each need is a command or a file with the package that has it: an existing one is
# used, whatever its origin, and apt runs only for missing ones.

readonly NEEDED_QEMU=8.2
readonly NEEDED_NODE=18
readonly NEEDED_RUST=1.85
readonly BACKPORTS=/etc/apt/sources.list.d/vivarium-backports.list

# The package of each command, and what cannot be done without it.
readonly COMMANDS="
  qemu-img qemu-utils no disk of a machine can be made
  nft nftables no machine gets a network
  conntrack conntrack no machine's connections can be cut
  ip iproute2 no machine gets a network
  bwrap bubblewrap no machine can be jailed
  setpriv util-linux no process can drop root's rights
  mount mount no storage pool
  mkfs.xfs xfsprogs no storage pool where the filesystem cannot clone files
  mkfs.ext4 e2fsprogs no base template can be built
  mmdebstrap mmdebstrap no base template can be built
  cpio cpio no guest kernel can be prepared
  xz xz-utils no guest kernel can be prepared
  zstd zstd no backups
  git git no base template can be built
  curl curl no base template can be built
  ps procps set-up cannot see what runs
  gcc gcc the guest agent cannot be built
"
readonly FILES="
  /etc/ssl/certs/ca-certificates.crt ca-certificates no download can be trusted
  /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring no base template can be built
  /usr/lib/x86_64-linux-gnu/libc.a libc6-dev the guest agent cannot be built
"

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() {
  [ -n "$1" ] && dpkg --compare-versions "$1" ge "$2"
}

qemu_version() {
  qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p'
}

node_version() {
  node --version 2>/dev/null | sed 's/^v//'
}

candidate() {
  apt-cache policy "$1" | sed -n 's/^ *Candidate: //p' | sed 's/(none)//'
}

packages_missing() {
  needs_missing | cut -d' ' -f1
}

# needs_missing: prints each missing package with the price of going without it, a line each.
needs_missing() {
  local need package price
  while read -r need package price; do
    [ -z "$need" ] || type -P "$need" >/dev/null || echo "$package $price"
  done <<<"$COMMANDS"
  while read -r need package price; do
    [ -z "$need" ] || [ -e "$need" ] || echo "$package $price"
  done <<<"$FILES"
  at_least "$(qemu_version)" "$NEEDED_QEMU" || echo "qemu-system-x86 no machine can run (it must be $NEEDED_QEMU or newer)"
  at_least "$(node_version)" "$NEEDED_NODE" || echo "nodejs nothing of the service can run (it must be $NEEDED_NODE or newer)"
  command -v npm >/dev/null || echo "npm nothing of the service can run"
  # Only to build the guest agent, which a host without a network is given.
  [ -x "${AGENT_BINARY:-}" ] || find_cargo >/dev/null || echo "rust the guest agent cannot be built (it must be $NEEDED_RUST or newer)"
}

install_packages() {
  local missing status
  missing=$(packages_missing)
  [ -n "$missing" ] || return 0
  set +e
  (
    set -e
    get_packages "$missing"
  )
  status=$?
  set -e
  [ "$status" -eq 0 ] || explain_missing
}

# explain_missing: ends the step with all packages that are missing still, unless it is known already what is wrong.
explain_missing() {
  local left
  stop_if_lacking
  left=$(needs_missing)
  [ -n "$left" ] || exit 1
  fail "these packages are missing, and apt could not install them (see $SETUP_LOG):
$(sed 's/^\([^ ]*\) \(.*\)/                  \1: without it \2/' <<<"$left")" \
    "package mirrors that have them and can be reached, for apt-get of this machine" \
    "check the network, its proxy settings and /etc/apt, or install them yourself: apt-get install $(cut -d' ' -f1 <<<"$left" | sort -u | sed 's/^rust$/rustc cargo/' | tr '\n' ' ')"
}

get_packages() {
  local missing=$1 rust
  progress "reading the package lists"
  apt_get update
  case "$missing" in *qemu*) add_backports_for_qemu ;; esac
  case "$missing" in
    *rust*)
      rust=$(rust_packages)
      missing="$(grep -v '^rust$' <<<"$missing" || true) $rust"
      ;;
  esac
  # shellcheck disable=SC2086
  progress "installing" $missing
  local others
  others=$(tr ' ' '\n' <<<"$missing" | grep -v '^qemu-' || true)
  # shellcheck disable=SC2086
  [ -z "$others" ] || apt_get install --no-install-recommends $others
  case "$missing" in *qemu*) install_qemu ;; esac
  check_qemu
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# Adds Debian 12's backports, from the mirror that this machine uses: its own QEMU is too old.
add_backports_for_qemu() {
  local version codename
  version=$(candidate qemu-system-x86)
  at_least "${version#*:}" "$NEEDED_QEMU" && return
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  grep -qsr -- "$codename-backports" /etc/apt/sources.list /etc/apt/sources.list.d || write_backports_source "$codename"
  progress "reading the package lists of $codename-backports"
  apt_get update
}

write_backports_source() {
  local mirror
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(SUITE) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
    awk -v name="$1" '$3 == name && $4 == "Debian" { print $1; exit }')
  [ -n "$mirror" ] ||
    fail "no apt source of this machine names Debian's $1" "one, since QEMU >= $NEEDED_QEMU comes from $1-backports of the same mirror" \
      "add Debian's $1 to /etc/apt/sources.list.d, or install QEMU >= $NEEDED_QEMU yourself"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1-backports main" >"$BACKPORTS"
}

# QEMU's packages and their dependencies must come from one release, or apt cannot install them.
install_qemu() {
  local codename release=()
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  at_least "$(default_qemu)" "$NEEDED_QEMU" || release=(-t "$codename-backports")
  apt_get install --no-install-recommends "${release[@]}" qemu-system-x86 qemu-utils
}
default_qemu() {
  local version
  version=$(candidate qemu-system-x86)
  echo "${version#*:}"
}

check_qemu() {
  at_least "$(qemu_version)" "$NEEDED_QEMU" ||
    fail "the QEMU in the PATH is version $(qemu_version)" "$NEEDED_QEMU or newer" \
      "remove $(command -v qemu-system-x86_64 || echo 'the old one') or put a newer one before it in the PATH"
}

# find_cargo: prints the first cargo that is new enough: in the PATH, in ~/.cargo, or with a version in its name.
find_cargo() {
  local cargo version
  for cargo in "$(command -v cargo)" "$HOME/.cargo/bin/cargo" $(printf '%s\n' /usr/bin/cargo-1.* | sort -rV); do
    [ -x "$cargo" ] || continue
    version=$("$cargo" --version 2>/dev/null | cut -d' ' -f2)
    if at_least "$version" "$NEEDED_RUST"; then
      echo "$cargo"
      return
    fi
  done
  return 1
}

# take_cargo_target ROOT: makes cargo build the crates of this checkout anew if another checkout used the cached target
# directory last. Cargo compares times alone, so it would take older sources for those that it has built.
take_cargo_target() {
  local last=$CACHE_DIR/cargo-target/checkout
  [ "$(cat "$last" 2>/dev/null)" != "$1" ] || return 0
  find "$1/guest" -name '*.rs' -exec touch {} +
  mkdir -p "$(dirname "$last")"
  printf '%s\n' "$1" >"$last"
}

# rust_packages: prints rustc and cargo packages that are new enough: Debian 12 and Ubuntu name them differently.
rust_packages() {
  local suffix version
  for suffix in "" -web $(apt-cache pkgnames rustc-1. | sed -n 's/^rustc\(-1\.[0-9]*\)$/\1/p' | sort -rV); do
    version=$(candidate "rustc$suffix")
    if at_least "$version" "$NEEDED_RUST" && [ -n "$(candidate "cargo$suffix")" ]; then
      echo "rustc$suffix cargo$suffix"
      return
    fi
  done
  fail "no apt source of this machine has Rust $NEEDED_RUST" "rustc and cargo $NEEDED_RUST or newer, to build the guest agent" \
    "install them another way so that cargo is in the PATH"
}
