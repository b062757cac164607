#!/usr/bin/env bash
# SmolLM2-135M-Instruct through the whole road on a CPU: make the model folder, warm it up, train, report.
#   examples/smollm2_cpu/run.sh path/to/svamp.jsonl
set -euo pipefail
svamp=${1:?usage: examples/smollm2_cpu/run.sh path/to/svamp.jsonl}
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
out=runs/smollm2_cpu
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1

[ -e "$out/model/config.json" ] || "$python" examples/smollm2_cpu/make_model.py --out "$out/model"
"$python" examples/smollm2_cpu/make_records.py --svamp "$svamp" --out "$out/data"
[ -e "$out/warm/config.json" ] || "$python" -m megatron_seirenes warmup yaml_configs/smollm2_cpu.yaml \
  model.path="$out/model" run.dir="$out/warmup"
"$python" -m megatron_seirenes train yaml_configs/smollm2_cpu.yaml
"$python" -m megatron_seirenes report "$out"
