#!/usr/bin/env bash
# Seirênes on Qwen2.5-7B-Instruct. Usage and what it does: examples/launch/torchrun.sh, docs/cluster.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=examples/qwen2.5_7b/settings.sh
source examples/qwen2.5_7b/settings.sh
# shellcheck source=examples/launch/torchrun.sh
source examples/launch/torchrun.sh
