# shellcheck shell=bash
# Lanes: commands that run side by side, each a process group with a log and a limit of its own. Sourced; the caller sets
# `reports`, a folder, and finds the lanes that failed in `failed`.
: "${reports:?}"

# Twice what a lane takes on two emulated cores. One that is not over by then hangs: a test runner that waits at its end for a
# handle that nobody closes says nothing, and waits for ever. On a slower host, set VIV_TEST_LANE_MINUTES.
LANE_MINUTES=${VIV_TEST_LANE_MINUTES:-30}
# From SIGTERM to SIGKILL.
LANE_ENDS_WITHIN=${VIV_TEST_LANE_ENDS_WITHIN:-30s}
failed=()
lanes=()
limits=()
names=()

# lane NAME COMMAND...: what lanes say comes mixed, line by line, and is in the log of each; their reports are joined at the end.
lane() {
  local name=$1
  shift
  rm -f "$reports/$name.late" "$reports/$name.over"
  # A process group for each lane, so that it ends with all that it runs.
  set -m
  (
    # The lane is told to end as a group: this shell stays to write down how its command did.
    trap : TERM
    started=$EPOCHSECONDS
    code=0
    # Not to the terminal itself, where each would draw over the other. A lane that is told to end has last words.
    "$@" </dev/null > >(trap '' INT TERM && exec tee "$reports/$name.log") 2>&1 || code=$?
    : >"$reports/$name.over"
    printf '%s\t%s\t%s\t%s\n' "$name" "$started" "$EPOCHSECONDS" "$code" >>"$reports/lanes.tsv"
    exit "$code"
  ) &
  lanes+=($!)
  limit_lane "$name" "$!" "$EPOCHSECONDS" &
  limits+=($!)
  set +m
  names+=("$name")
}

# limit_lane NAME GROUP STARTED: ends the lane's process group, and no other, once its time is over.
limit_lane() {
  sleep "${LANE_MINUTES}m"
  # Its number may be another group's by now.
  [ ! -e "$reports/$1.over" ] || return 0
  : >"$reports/$1.late"
  printf '== The lane %s is %s: it is ended.\n' "$1" "$(lateness "$1")"
  kill -- "-$2" 2>/dev/null || true
  sleep "$LANE_ENDS_WITHIN"
  kill -KILL -- "-$2" 2>/dev/null || true
  [ -e "$reports/$1.over" ] || printf '%s\t%s\t%s\t137\n' "$1" "$3" "$EPOCHSECONDS" >>"$reports/lanes.tsv"
}

lateness() { printf 'not over after %s minutes; its log: %s' "$LANE_MINUTES" "$reports/$1.log"; }

# A lane that fails leaves the others to their end.
wait_for_lanes() {
  local at name
  for at in "${!lanes[@]}"; do
    name=${names[at]}
    wait "${lanes[at]}" || failed+=("$name$([ ! -e "$reports/$name.late" ] || printf ', %s' "$(lateness "$name")")")
    # What of a late lane does not take notice of SIGTERM is still there.
    [ -e "$reports/$name.late" ] || kill -- "-${limits[at]}" 2>/dev/null || true
    wait "${limits[at]}" || true
  done
  lanes=()
  limits=()
  names=()
}

# Those that take no notice of SIGTERM are killed.
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
