# shellcheck shell=bash
# Trains under SLURM: one task a GPU by srun, without torchrun in between, so signals and exit codes arrive as they are.
# Sourced by examples/*/slurm.sbatch, which says how many nodes and when to warn. Submit from the root of the checkout:
#
#   sbatch examples/qwen3_30b_a3b/slurm.sbatch run.name=first
#   bash   examples/qwen3_30b_a3b/slurm.sbatch --dry-run        prints every command, needs no SLURM
#
# Ahead of the time limit SLURM sends SIGUSR1 to this script alone (--signal=B:USR1@...). It passes it on; every rank
# saves and the step ends with 75 (or leaves STOPPED); then the job puts itself back into the queue and the next start
# goes on. A stop that SLURM did not warn of was meant: the job ends with 75 and is not queued again. After a node failure
# or a preemption SLURM itself requeues (--requeue), and the run goes on from its newest complete snapshot.

# shellcheck source=examples/launch/common.sh
source examples/launch/common.sh
# shellcheck source=examples/launch/environment.sh
source examples/launch/environment.sh

WARNED=0
CHILD=

# The first host of the allocation is where the ranks meet; the port is the job's own, so that jobs can share a node.
find_rendezvous() {
  MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 20000))}
  if ((DRY_RUN)) && [[ -z ${SLURM_JOB_NODELIST:-} ]]; then
    MASTER_ADDR=FIRST_HOST
    return
  fi
  # sed reads to the end: `head` would end scontrol by SIGPIPE, which pipefail takes for a failure.
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
  [[ -n $MASTER_ADDR ]] || {
    say "scontrol names no host for '$SLURM_JOB_NODELIST'"
    exit 1
  }
}

build_srun_words() {
  local logs=$RUN_DIR/logs/slurm-${SLURM_JOB_ID:-JOB}-start-${SLURM_RESTART_COUNT:-0}
  # A rank that died leaves the others waiting in a collective: they are ended two minutes after it. Not at once
  # (--kill-on-bad-exit=1), because 75 of the first rank that has saved would end those that are a moment behind.
  SRUN=(srun --ntasks "$((NODES * GPUS_PER_NODE))" --ntasks-per-node "$GPUS_PER_NODE"
    --kill-on-bad-exit=0 --wait=120 --label --output "$logs-node-%n.log")
  INSIDE=()
  case ${CONTAINER:-} in
    "") ;;
    *.sif) INSIDE=(apptainer exec --nv --bind "$PWD:$PWD" --pwd "$PWD" "$CONTAINER") ;;
    *) SRUN+=(--container-image "$CONTAINER" --container-mounts "$PWD:$PWD" --container-workdir "$PWD") ;;
  esac
}

# srun tells each task its number; the launcher variables follow from that.
# shellcheck disable=SC2016
TASK='export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; exec "$@"'

pass_warning_on() {
  WARNED=1
  say "warned by SLURM: asking every rank to save and stop"
  [[ -z $CHILD ]] || kill -USR1 "$CHILD" 2>/dev/null || true
}

finish() {
  local code=$1
  if ((code != STOPPED_EXIT)) && [[ ! -e $RUN_DIR/STOPPED ]]; then
    if ((code)); then say "failed with exit code $code; logs: $RUN_DIR/logs"; else say "done"; fi
    exit "$code"
  fi
  if ! ((WARNED)); then
    say "stopped by hand, everything saved; submit again to go on"
    exit "$STOPPED_EXIT"
  fi
  if ((${SLURM_RESTART_COUNT:-0} >= ${MAX_RESTARTS:-100})); then
    say "saved, but not queued again: $SLURM_RESTART_COUNT starts are the limit (MAX_RESTARTS)"
    exit "$STOPPED_EXIT"
  fi
  say "saved; back into the queue"
  run scontrol requeue "$SLURM_JOB_ID"
}

main() {
  read_arguments "$@"
  if [[ -z ${SLURM_JOB_ID:-} ]] && ! ((DRY_RUN)); then
    say "not inside a SLURM job: submit with sbatch, or look with --dry-run"
    exit 2
  fi
  find_rendezvous
  export MASTER_ADDR MASTER_PORT
  if ((DRY_RUN)); then printf 'export MASTER_ADDR=%q MASTER_PORT=%q\n' "$MASTER_ADDR" "$MASTER_PORT"; fi
  set_environment
  build_train_words
  build_srun_words
  run mkdir -p "$RUN_DIR/logs"
  run rm -f "$RUN_DIR/STOPPED"
  local command=("${SRUN[@]}" bash -c "$TASK" seirenes "${INSIDE[@]}" "$PYTHON" "${TRAIN[@]}")
  if ((DRY_RUN)); then
    run "${command[@]}"
    say "then, after exit code $STOPPED_EXIT or STOPPED, and when warned: scontrol requeue JOB"
    exit 0
  fi
  trap pass_warning_on USR1
  # SLURM sends SIGTERM to the ranks, too; a second one would end them before they have saved.
  trap 'say "SIGTERM: waiting for the ranks to save"' TERM
  start "${command[@]}"
  local code=0
  wait_for_child || code=$?
  finish "$code"
}

main "$@"
