# shellcheck shell=bash disable=SC2034
# DAPO on Qwen3-30B-A3B-Instruct-2507, the baseline of equal budget: the same file, another game. 2 nodes of 8 x H100 80 GB.
MODEL_NAME=qwen3_30b_a3b_dapo
CONFIG=yaml_configs/qwen3_30b_a3b.yaml
# The loss is averaged over tokens (docs/games/grpo.md). For equal budgets set run.budget.generated_tokens in both.
OVERRIDES=(game.name=grpo objective.aggregation=token_mean)
NODES=${NODES:-2}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
