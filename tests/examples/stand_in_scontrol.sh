#!/usr/bin/env bash
# Stands in for scontrol in the rehearsal: names two hosts, records what is queued again.
case $1 in
  show) printf 'node-a\nnode-b\n' ;;
  requeue) printf '%s\n' "$2" >> "$RECORD/requeue" ;;
esac
