#!/usr/bin/env bash
# Stands in for srun in the rehearsal: two tasks on this machine, their numbers as SLURM gives them, signals passed on to
# each, the largest exit code returned. Options end where `bash` begins. Its own arguments are recorded.
printf '%s\n' "$*" >> "$RECORD/srun"
while [[ $1 != bash ]]; do shift; done
tasks=()
for number in 0 1; do
  SLURM_PROCID=$number SLURM_LOCALID=$number SLURM_NTASKS=2 "$@" &
  tasks+=($!)
done
trap 'kill -USR1 "${tasks[@]}"' USR1
trap 'kill -TERM "${tasks[@]}"' TERM
worst=0
for task in "${tasks[@]}"; do
  while kill -0 "$task" 2>/dev/null; do
    code=0
    wait "$task" || code=$?
  done
  wait "$task" 2>/dev/null || code=$?
  ((code > worst)) && worst=$code
done
exit "$worst"
