# shellcheck shell=bash
# Runs the steps of ./setup. A step is a function; it calls `progress` only when it has something to do, and `fail` when
# it knows the cause of a failure. The output of its commands goes to a log, which is shown only when the step fails.

SETUP_LOG=$CACHE_DIR/setup.log
EXPLANATION=$CACHE_DIR/setup.explanation
STEP_WORKED=$CACHE_DIR/setup.worked

seconds_since() {
  awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { sub(",", ".", from); sub(",", ".", to); printf "%.1f s", to - from }'
}

# step NAME WHAT WAY_OUT FUNCTION [ARGUMENT…]: runs FUNCTION with `set -e`; prints one line with the result and the duration.
step() {
  local name=$1 what=$2 way_out=$3 started=$EPOCHREALTIME status
  rm -f "$EXPLANATION" "$STEP_WORKED"
  printf '%-10s %s' "$name" "$what"
  : >"$SETUP_LOG"
  set +e
  (
    set -e
    exec 3>&1 >>"$SETUP_LOG" 2>&1 </dev/null
    "${@:4}"
  )
  status=$?
  set -e
  if [ "$status" -ne 0 ]; then
    explain_failure "$name" "$way_out"
    exit 1
  elif [ -e "$STEP_WORKED" ]; then
    printf '\n%-10s done (%s)\n' '' "$(seconds_since "$started")"
  else
    printf ': ok (%s)\n' "$(seconds_since "$started")"
  fi
}

progress() {
  : >"$STEP_WORKED"
  printf '\n%-10s   %s' '' "$*" >&3
}

# fail WRONG EXPECTED WAY_OUT: ends the step with an explanation.
fail() {
  lack "$@"
  exit 1
}

# lack WRONG EXPECTED WAY_OUT: notes one of several things that are wrong; `stop_if_lacking` ends the step with all.
lack() {
  [ ! -s "$EXPLANATION" ] || echo >>"$EXPLANATION"
  printf 'What is wrong:  %s\nExpected:       %s\nWay out:        %s\n' "$1" "$2" "$3" >>"$EXPLANATION"
}

stop_if_lacking() {
  [ ! -s "$EXPLANATION" ] || exit 1
}

explain_failure() {
  {
    printf '\n\nSet-up stopped at the step "%s".\n' "$1"
    if [ -e "$EXPLANATION" ]; then
      cat "$EXPLANATION"
    else
      printf 'The last lines of its log (%s):\n' "$SETUP_LOG"
      tail -n 20 "$SETUP_LOG" | sed 's/^/    /'
      printf 'Way out:        %s\n' "$2"
    fi
    printf 'Then run ./setup again: it goes on where it stopped.\n'
  } >&2
}

# hash_of PATH...: prints one hash over the names and contents of files and folders.
hash_of() {
  find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum | sha256sum | cut -c1-16
}
