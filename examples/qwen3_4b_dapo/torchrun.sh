#!/usr/bin/env bash
# DAPO on Qwen3-4B-Instruct-2507, the baseline of equal budget: the same file, another game. Usage and what it does: examples/launch/torchrun.sh, docs/cluster.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=examples/qwen3_4b_dapo/settings.sh
source examples/qwen3_4b_dapo/settings.sh
# shellcheck source=examples/launch/torchrun.sh
source examples/launch/torchrun.sh
