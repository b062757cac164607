# shellcheck shell=bash
# The environment that matters on H100 nodes, and why. A value that is already set wins, except where noted. None of it
# changes what a run computes. NOT YET RUN ON A GPU: these are what Megatron-Core, vLLM and NCCL document or ask for.

set_default() {
  local name=$1 value=$2
  [[ -n ${!name:-} ]] || export "$name=$value"
  if ((DRY_RUN)); then printf 'export %q=%q\n' "$name" "${!name}"; fi
}

set_environment() {
  # Megatron-Core orders overlapped communication and computation by the one hardware queue.
  set_default CUDA_DEVICE_MAX_CONNECTIONS 1
  # vLLM reads it before start-up; the default, one thread a core for each of eight processes, thrashes the node.
  set_default OMP_NUM_THREADS 8
  # NVLink SHARP keeps buffers for every communicator; actor and engine together make dozens of them.
  set_default NCCL_NVLS_ENABLE 0
  # NCCL's own cuMem allocator adds memory to every captured CUDA graph.
  set_default NCCL_CUMEM_ENABLE 0
  # A collective that hangs writes what each rank was waiting for, and then ends the run instead of the allocation.
  set_default TORCH_NCCL_TRACE_BUFFER_SIZE 20000
  set_default TORCH_NCCL_DUMP_ON_TIMEOUT 1
  # Compiled kernels go to a disk of the node: a shared home is slow, and ranks of several nodes would race for it.
  set_default TRITON_CACHE_DIR "${TMPDIR:-/tmp}/seirenes-${USER:-user}/triton"
  set_default TORCHINDUCTOR_CACHE_DIR "${TMPDIR:-/tmp}/seirenes-${USER:-user}/inductor"
  # Models and questions are local files; no rank may wait for a network.
  set_default HF_HUB_OFFLINE 1
  set_default TOKENIZERS_PARALLELISM false
  # Logs appear line by line, also when a rank dies.
  set_default PYTHONUNBUFFERED 1
  set_default PYTHONFAULTHANDLER 1
  # Not a default but a refusal: vLLM's sleep mode cannot give memory back from expandable segments.
  if [[ ${PYTORCH_CUDA_ALLOC_CONF:-} == *expandable_segments:True* ]]; then
    say "PYTORCH_CUDA_ALLOC_CONF: expandable_segments cannot be used beside a vLLM engine that sleeps; unset it"
    exit 2
  fi
  # Of the cluster, so not set here: NCCL_SOCKET_IFNAME (the interface that nodes meet on), NCCL_IB_HCA (the adapters).
}
