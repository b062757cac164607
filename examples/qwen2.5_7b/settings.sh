# shellcheck shell=bash disable=SC2034
# Seirênes on Qwen2.5-7B-Instruct. 1 node of 8 x H100 80 GB.
MODEL_NAME=qwen2.5_7b
CONFIG=yaml_configs/qwen2.5_7b.yaml
OVERRIDES=()
NODES=${NODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
