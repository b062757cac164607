# shellcheck shell=bash disable=SC2034
# What torchrun.sh and slurm.sh share. Sourced after a model's settings.sh, which names MODEL_NAME, CONFIG, OVERRIDES,
# NODES and GPUS_PER_NODE. Any of these, and RUN_NAME, RUN_DIR, PYTHON, CONTAINER, may be set by the caller.

RUN_NAME=${RUN_NAME:-$MODEL_NAME}
RUN_DIR=${RUN_DIR:-runs/$RUN_NAME}
PYTHON=${PYTHON:-.venv/bin/python}
STOPPED_EXIT=75 # everything is saved; the same command goes on
DRY_RUN=0

say() { printf '%s\n' "$*" >&2; }

# Takes --dry-run out of the arguments; what remains are configuration overrides, which come last and win.
read_arguments() {
  USER_OVERRIDES=()
  local argument
  for argument in "$@"; do
    case $argument in
      --dry-run) DRY_RUN=1 ;;
      -h | --help)
        say "usage: ${0##*/} [--dry-run] [section.key=value ...]"
        exit 0
        ;;
      run.dir=*) RUN_DIR=${argument#run.dir=} ;; # where STOPPED is looked for, too
      *=*) USER_OVERRIDES+=("$argument") ;;
      *)
        say "${0##*/}: '$argument' is neither --dry-run nor section.key=value"
        exit 2
        ;;
    esac
  done
}

# The words after `python` that train, into TRAIN.
build_train_words() {
  TRAIN=(-m megatron_seirenes train "$CONFIG" "run.name=$RUN_NAME" "run.dir=$RUN_DIR"
    "${OVERRIDES[@]}" "${USER_OVERRIDES[@]}")
}

# Prints a command so that it can be pasted into a shell; runs it unless this is a dry run.
run() {
  local words
  words=$(printf '%q ' "$@")
  if ((DRY_RUN)); then
    printf '%s\n' "${words% }"
    return 0
  fi
  say "+ ${words% }"
  "$@"
}

# Starts a command whose process id is then CHILD. In the background, because bash runs a trap only between commands, and
# `wait` is one that a signal ends at once.
start() {
  local words
  words=$(printf '%q ' "$@")
  say "+ ${words% }"
  "$@" &
  CHILD=$!
}

# Returns the exit code of CHILD. A `wait` that a signal has ended says 128 + the signal, and is taken up again.
wait_for_child() {
  local code=0 last
  while kill -0 "$CHILD" 2>/dev/null; do
    code=0
    wait "$CHILD" || code=$?
  done
  last=0
  wait "$CHILD" 2>/dev/null || last=$?
  ((last == 127)) || code=$last
  return "$code"
}
