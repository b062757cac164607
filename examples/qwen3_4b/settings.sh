# shellcheck shell=bash disable=SC2034
# Seirênes on Qwen3-4B-Instruct-2507. 1 node of 8 x H100 80 GB.
MODEL_NAME=qwen3_4b
CONFIG=yaml_configs/qwen3_4b.yaml
OVERRIDES=()
NODES=${NODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
