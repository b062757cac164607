# shellcheck shell=bash disable=SC2034
# DAPO on Qwen2.5-7B-Instruct, the baseline of equal budget: the same file, another game. 1 node of 8 x H100 80 GB.
MODEL_NAME=qwen2.5_7b_dapo
CONFIG=yaml_configs/qwen2.5_7b.yaml
# The loss is averaged over tokens (docs/games/grpo.md). For equal budgets set run.budget.generated_tokens in both.
OVERRIDES=(game.name=grpo objective.aggregation=token_mean)
NODES=${NODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
