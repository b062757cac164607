# shellcheck shell=bash disable=SC2034
# Seirênes on Qwen3-30B-A3B-Instruct-2507. 2 nodes of 8 x H100 80 GB.
MODEL_NAME=qwen3_30b_a3b
CONFIG=yaml_configs/qwen3_30b_a3b.yaml
OVERRIDES=()
NODES=${NODES:-2}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
