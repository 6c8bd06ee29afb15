# shellcheck shell=bash
# Runs lanes: commands side by side, each a process group with a log and a time limit of its own. Sourced; the caller
# sets `reports`, a directory, and reads the failed lanes from `failed`.
: "${reports:?}"

# Time limit of a lane: twice what the slowest takes on two emulated cores. A lane that takes longer hangs: a test
# runner waits for ever, and prints nothing, when a handle is still open at its end. On a slower host, set
# VIV_TEST_LANE_MINUTES.
LANE_MINUTES=${VIV_TEST_LANE_MINUTES:-60}
# Time between SIGTERM and SIGKILL.
LANE_ENDS_WITHIN=${VIV_TEST_LANE_ENDS_WITHIN:-30s}
failed=()
lanes=()
limits=()
names=()

# lane NAME COMMAND...: starts a lane. The lines of all lanes are mixed on standard output; each lane also has a log.
lane() {
  local name=$1
  shift
  rm -f "$reports/$name.late" "$reports/$name.over"
  # A process group for each lane, so that the lane ends with all its processes.
  set -m
  (
    # SIGTERM goes to the whole group: this shell ignores it, to record the exit code of its command.
    trap : TERM
    started=$EPOCHSECONDS
    code=0
    # Through a pipe, since programs that see the terminal would overwrite each other's lines. tee ignores SIGTERM,
    # after which a lane may still print its last lines.
    "$@" </dev/null > >(trap '' INT TERM && exec tee "$reports/$name.log") 2>&1 || code=$?
    : >"$reports/$name.over"
    printf '%s\t%s\t%s\t%s\n' "$name" "$started" "$EPOCHSECONDS" "$code" >>"$reports/lanes.tsv"
    exit "$code"
  ) &
  lanes+=($!)
  limit_lane "$name" "$!" &
  limits+=($!)
  set +m
  names+=("$name")
}

# limit_lane NAME GROUP: ends the lane's process group, and no other, after the time limit.
limit_lane() {
  local started=$EPOCHSECONDS
  sleep "${LANE_MINUTES}m"
  # Once a lane is over, its group number may belong to other processes.
  [ ! -e "$reports/$1.over" ] || return 0
  : >"$reports/$1.late"
  printf '== The lane %s is %s: it is ended.\n' "$1" "$(lateness "$1")"
  kill -- "-$2" 2>/dev/null || true
  sleep "$LANE_ENDS_WITHIN"
  kill -KILL -- "-$2" 2>/dev/null || true
  [ ! -e "$reports/$1.over" ] || return 0
  : >"$reports/$1.over"
  printf '%s\t%s\t%s\t137\n' "$1" "$started" "$EPOCHSECONDS" >>"$reports/lanes.tsv"
}

lateness() { printf 'not over after %s minutes; its log: %s' "$LANE_MINUTES" "$reports/$1.log"; }

# Waits for all lanes; a failed lane does not stop the others.
wait_for_lanes() {
  local at name
  for at in "${!lanes[@]}"; do
    name=${names[at]}
    wait "${lanes[at]}" || failed+=("$name$([ ! -e "$reports/$name.late" ] || printf ', %s' "$(lateness "$name")")")
    # Processes of a late lane that ignore SIGTERM are still there.
    [ -e "$reports/$name.late" ] || kill -- "-${limits[at]}" 2>/dev/null || true
    wait "${limits[at]}" || true
  done
  lanes=()
  limits=()
  names=()
}

# Ends all lanes with SIGTERM, and kills the processes that ignore it.
end_lanes() {
  local group
  for group in "${limits[@]}" "${lanes[@]}"; do kill -- "-$group" 2>/dev/null || true; done
  (
    sleep "$LANE_ENDS_WITHIN"
    for group in "${lanes[@]}"; do kill -KILL -- "-$group" 2>/dev/null || true; done
  ) &
  local killer=$!
  wait "${lanes[@]}" "${limits[@]}" || true
  kill "$killer" 2>/dev/null || true
}
