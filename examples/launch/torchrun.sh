# shellcheck shell=bash
# Trains by torchrun, on one node or on many. Sourced by examples/*/torchrun.sh.
#
#   examples/qwen3_4b/torchrun.sh                                          one node
#   NODE_RANK=0 MASTER_ADDR=node-a examples/qwen3_30b_a3b/torchrun.sh      on the first of NODES nodes, and
#   NODE_RANK=1 MASTER_ADDR=node-a examples/qwen3_30b_a3b/torchrun.sh      on the second, at the same time
#
# A stop (Ctrl-C, SIGTERM, SIGUSR1) reaches every rank; when everything is saved the script ends with 75, whatever
# torchrun says: torchrun itself exits 1 after a signal, so the STOPPED marker of the run directory is what counts.

# shellcheck source=examples/launch/common.sh
source examples/launch/common.sh
# shellcheck source=examples/launch/environment.sh
source examples/launch/environment.sh

build_torchrun_words() {
  local log_dir=$RUN_DIR/logs/torchrun/node-${NODE_RANK:-0}
  TORCHRUN=("$PYTHON" -m torch.distributed.run --nproc-per-node "$GPUS_PER_NODE" --max-restarts 0)
  if ((NODES == 1)); then
    TORCHRUN+=(--standalone)
  else
    TORCHRUN+=(--nnodes "$NODES" --node-rank "$NODE_RANK"
      --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}")
  fi
  # torchrun forwards only the signals it is told of, and kills ranks that save for longer than the time-out.
  TORCHRUN+=(--signals-to-handle "SIGTERM,SIGINT,SIGUSR1" --shutdown-timeout "${SHUTDOWN_TIMEOUT:-1800}")
  TORCHRUN+=(--log-dir "$log_dir" --tee 3 --local-ranks-filter 0)
}

check_rendezvous() {
  local faults=()
  ((NODES == 1)) && return
  [[ ${NODE_RANK:-} =~ ^[0-9]+$ ]] && ((NODE_RANK < NODES)) || faults+=("NODE_RANK: 0 to $((NODES - 1)) is needed")
  [[ -n ${MASTER_ADDR:-} ]] || faults+=("MASTER_ADDR: the name of the first node is needed")
  if ((${#faults[@]})); then
    say "$NODES nodes are to be started, each by this script (NODES=$NODES):"
    printf '  %s\n' "${faults[@]}" >&2
    exit 2
  fi
}

main() {
  read_arguments "$@"
  check_rendezvous
  set_environment
  build_train_words
  build_torchrun_words
  run mkdir -p "$RUN_DIR/logs"
  # A marker of an earlier stop says nothing about this launch.
  run rm -f "$RUN_DIR/STOPPED"
  if ((DRY_RUN)); then
    run "${TORCHRUN[@]}" "${TRAIN[@]}"
    return 0
  fi
  # In a session of its own: Ctrl-C would else reach torchrun and every rank by itself, and a rank ends at once when it is
  # told twice.
  start setsid "${TORCHRUN[@]}" "${TRAIN[@]}"
  trap 'kill -TERM "$CHILD" 2>/dev/null || true' TERM INT
  trap 'kill -USR1 "$CHILD" 2>/dev/null || true' USR1
  local code=0
  wait_for_child || code=$?
  if [[ -e $RUN_DIR/STOPPED ]]; then
    say "stopped with everything saved: $(<"$RUN_DIR/STOPPED")"
    return "$STOPPED_EXIT"
  fi
  return "$code"
}

main "$@"
