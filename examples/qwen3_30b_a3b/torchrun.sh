#!/usr/bin/env bash
# Seirênes on Qwen3-30B-A3B-Instruct-2507. Usage and what it does: examples/launch/torchrun.sh, docs/cluster.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=examples/qwen3_30b_a3b/settings.sh
source examples/qwen3_30b_a3b/settings.sh
# shellcheck source=examples/launch/torchrun.sh
source examples/launch/torchrun.sh
