#!/usr/bin/env bash
# Times training steps against PyTorch on the same shapes, in one run (bench/suite/main.py). With
# `ranks` as the first argument it times one rank and two (ranks.py); with `startup`, how long ranks
# take to start (startup.py); with `context`, long sequences over ranks (bench/context); with
# `memory`, memory against its prediction (bench/memory); with `small-memory`, FSDP and
# recomputation against PyTorch's (small_memory.py); with `tokenizers` and `tokenizer-training`,
# tokenizers and their trainers against the packages (bench/tokenizers); with `tokenizer-start`, the
# start of large vocabularies; with `sample-index`, the sample order of a large corpus against
# megatron-core's helpers (bench/sample_index); with `preprocess-data`, that command against
# Megatron-LM's script; with `loader`, the loader of training data against mock data (bench/loader);
# with `control-plane`, how long 10,000 simulated ranks take to meet and to learn of a death
# (bench/control_plane); with `latent-attention`, latent attention against transformers'
# (bench/attention_block); with `recurrent-layers`, Mamba-2 and gated delta nets against
# transformers' (there, too); with `attention-variants`, variants of attention against plain
# attention (bench/attention); with `inference`, the inference engine beside llama.cpp, vLLM and
# transformers (bench/inference); with `serving`, the server beside the engine without one (there,
# too); with `checkpoints`, saves and loads beside PyTorch's (checkpoints.py); with `bert`, the step
# of BERT beside transformers', and what padding costs it (bert.py).
# Further arguments go to the program; --help lists them.
set -uo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  context | memory)
    folder=$1
    shift
    exec python3 -B "bench/$folder/run.py" "$@"  # needs nothing but Python and megatron
    ;;
  tokenizer-start)
    shift
    exec python3 -B bench/tokenizers/start.py "$@"
    ;;
  loader)
    shift
    said=$(cmake --build build --target loader_bench 2>&1) || { echo "$said" >&2; exit 2; }
    exec python3 -B bench/loader/run.py "$@"
    ;;
  attention-variants)
    shift
    said=$(cmake --build build --target attention_bench attention_block_bench 2>&1) ||
      { echo "$said" >&2; exit 2; }
    exec python3 -B bench/attention/variants.py "$@"
    ;;
  control-plane)
    shift
    said=$(cmake --build build --target control_plane_bench 2>&1) || { echo "$said" >&2; exit 2; }
    exec build/bin/control_plane_bench "$@"
    ;;
esac
program=main
case "${1:-}" in
  ranks | startup | small-memory | tokenizers | tokenizer-training | preprocess-data | \
    sample-index | latent-attention | recurrent-layers | inference | serving | \
    checkpoints | bert)
    program=${1//-/_}
    shift
    ;;
esac
script=bench/suite/$program.py
[ "$program" = tokenizers ] && script=bench/tokenizers/run.py
[ "$program" = tokenizer_training ] && script=bench/tokenizers/train.py
[ "$program" = preprocess_data ] && script=bench/tokenizers/preprocess.py
[ "$program" = sample_index ] && script=bench/sample_index/run.py
[ "$program" = latent_attention ] && script=bench/attention_block/latent.py
[ "$program" = recurrent_layers ] && script=bench/attention_block/recurrent.py
[ "$program" = inference ] && script=bench/inference/run.py
[ "$program" = serving ] && script=bench/inference/serving.py
case " $* " in
  # Nothing is installed to answer that.
  *" --help "* | *" -h "* | *" --list "*) exec python3 -B "$script" "$@" ;;
esac
source tests/parity/environment.sh
ensure_parity_environment || exit $?
ensure_python_headers
export MEGATRON=${MEGATRON:-$PWD/build/bin/megatron} MEGATRON_CACHE=$CACHE
export PYTHONDONTWRITEBYTECODE=1
[ -x "$MEGATRON" ] || { echo "$MEGATRON is missing: run make build first." >&2; exit 2; }
if [ -f build/build.ninja ] && [ "$MEGATRON" = "$PWD/build/bin/megatron" ]; then
  programs=suite_programs
  [ "$program" = sample_index ] && programs=sample_index_bench
  [ "$program" = latent_attention ] && programs=attention_block_bench
  [ "$program" = recurrent_layers ] && programs="attention_block_bench gemm_bench"
  said=$(cmake --build build --target $programs 2>&1) || { echo "$said" >&2; exit 2; }
fi
case "$program $* " in
  "main "*"--smoke "*)
    for folder in context memory; do python3 -B "bench/$folder/run.py" --smoke || exit $?; done
    "$PYTHON" bench/suite/small_memory.py --smoke || exit $?
    "$PYTHON" bench/suite/bert.py --smoke || exit $?
    "$PYTHON" bench/inference/run.py --smoke --peers || exit $?
    "$PYTHON" bench/inference/run.py --smoke --only prefill --peers transformers || exit $?
    "$PYTHON" bench/inference/serving.py --smoke || exit $?
    ;;
esac
exec "$PYTHON" "$script" "$@"
