// Megatron-LM's flags that have no effect here, and the members of its configuration classes.
// Notation: `name` is a switch, `no-name` also one without "no-"; `name^` is also spelled
// --disable-…; `name?` also has a --no- form; `name=a;b` takes a value and has these neutral values
// (`-` is none, the first is Megatron's default); `name={a,b}` and `name=*` list the accepted
// values; `name+=…` is a list. A flag that only tunes a feature is accepted: without the flag that
// asks for the feature, which is refused, it has no effect in Megatron-LM either.
#include "megatron/config/known_flags.h"

namespace megatron {
namespace {

using enum KnownFlags::Treatment;

constexpr KnownFlags kKnownFlags[] = {
    {accepted,
     "without effect: it chooses among Megatron-LM's kernels, and there is one "
     "implementation here",
     "",
     "attention-backend={auto,flash,fused,unfused,local,transformer_engine,torch} "
     "flash-attention-version={2,3,4} use-flash-attn flash-attention "
     "transformer-impl={local,transformer_engine,inference_optimized} use-mcore-models "
     "no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion "
     "bias-activation-fusion no-rope-fusion apply-rope-fusion use-fused-rope fused-single-qkv-rope "
     "memory-efficient-layer-norm no-persist-layer-norm no-gradient-accumulation-fusion "
     "cross-entropy-loss-fusion cross-entropy-fusion-impl={native,te} "
     "use-fused-weighted-squared-relu fused-residual-rmsnorm use-transformer-engine-op-fuser "
     "use-te-activation-func disable-jit-fuser no-clone-scatter-output-in-embedding^ "
     "disable-bf16-reduced-precision-matmul no-create-attention-mask-in-dataloader flash-decode "
     "moe-grouped-gemm moe-permute-fusion moe-router-fusion use-grouped-gemm-for-dense-mlp "
     "use-grouped-gemm-for-shared-expert moe-use-grouped-tensor mla-down-proj-fusion "
     "disable-mamba-mem-eff-path te-rng-tracker use-te-rng-tracker inference-rng-tracker "
     "use-cpu-initialization no-initialization perform-initialization enable-experimental "
     "batch-invariant-backend={te_native,deepgemm,triton} kitchen-attention-backend={sdpa,fa} "
     "optimizer-cuda-graph cuda-graph-warmup-steps=* no-gradient-reduce-div-fusion "
     "moe-use-legacy-grouped-gemm create-attention-mask use-mamba-mem-eff-path "
     "disable-parameter-transpose-cache"},
    {accepted,
     "without effect: it chooses how Megatron-LM sends between stages, and there is one "
     "way here",
     "",
     "pipeline-model-parallel-comm-backend={nccl,ucc} use-ring-exchange-p2p "
     "no-scatter-gather-tensors-in-pipeline "
     "overlap-p2p-communication-warmup-flush overlap-p2p-comm-warmup-flush batch-p2p-comm "
     "batch-p2p-sync deallocate-pipeline-outputs variable-seq-lengths"},
    {accepted, "without effect: it tunes when Megatron-LM reduces gradients and gathers weights",
     "", "no-align-grad-reduce^ no-align-param-gather overlap-param-gather-with-optimizer-step"},
    {accepted,
     "without effect: --pipeline-schedule zb-h1, zb-h2 and zb-v defer the weight gradients of "
     "every layer",
     "", "defer-embedding-wgrad-compute wgrad-deferral-limit=* delay-wgrad-compute"},
    {accepted,
     "without effect: it tunes how Megatron-LM sends tokens to experts, and there is one way here",
     "",
     "overlap-dispatch-backward-with-experts-wgrad ep-overlap-early-attn-memory-release "
     "high-priority-a2a-comm-stream moe-flex-dispatcher-backend={deepep,hybridep,ncclep} "
     "moe-enable-deepep moe-permute-fusion-into-hybridep moe-hybridep-pad-uneven-dispatch-inputs "
     "moe-flex-dispatcher-num-sms=* moe-deepep-num-sms=* moe-hybridep-num-sms=* "
     "moe-hybridep-num-blocks-permute=* moe-hybridep-num-blocks-unpermute=* "
     "moe-hybridep-num-sms-preprocessing=* moe-ncclep-zero-copy"},
    {accepted, "without effect: it tunes the overlap of Transformer Engine", "",
     "no-tp-comm-bulk-wgrad^ no-tp-comm-bulk-dgrad^ no-tp-comm-overlap-ag^ no-tp-comm-overlap-rs^ "
     "tp-comm-overlap-rs-dgrad no-tp-comm-split-ag^ no-tp-comm-split-rs^ tp-comm-atomic-ag "
     "tp-comm-atomic-rs tp-comm-overlap-disable-qkv tp-comm-overlap-disable-fc1 "
     "tp-comm-bootstrap-backend={nccl,mpi,gloo} tp-comm-overlap-cfg=* "
     "symmetric-ar-type={two_shot,one_shot,multimem_all_reduce}"},
    {accepted,
     "without effect: it tunes NCCL or PyTorch's process groups, whose defaults are used "
     "here",
     "",
     "nccl-communicator-config-path=* disable-gloo-process-groups use-sharp "
     "sharp-enabled-group={dp,dp_replica} high-priority-stream-groups+=* use-nccl-ub nccl-ub "
     "disable-symmetric-registration flight-recorder-dump-path=* "
     "flight-recorder-trace-buffer-size=* no-flight-recorder-dump-on-timeout^ "
     "flight-recorder-include-stack-trace no-flight-recorder-include-only-active^ "
     "no-flight-recorder-extra-dump-on-exec^"},
    {accepted, "without effect: --distributed-timeout-minutes applies to the whole run", "",
     "distributed-timeout-seconds-after-init=*"},
    {accepted, "without effect: the launcher's environment determines the rank", "",
     "local-rank=*"},
    {accepted, "without effect: offloaded optimizer state is updated where the weights are", "",
     "use-torch-optimizer-for-cpu-offload"},
    {accepted, "without effect: every replica starts with the same weights", "",
     "data-parallel-random-init"},
    {accepted,
     "without effect: models are always declared without storage, and a rank allocates only the "
     "weights that it keeps",
     "", "init-model-with-meta-device"},
    {accepted, "without effect: weights have no GTP shards in this version", "",
     "gtp-remat-reduce-scatter-with-fp32-accumulation gtp-remat-nccl-ub gtp-expert-remat-nccl-ub"},
    {accepted, "without effect: the distributed optimizer has one layout of shards here", "",
     "no-use-layer-wise-param-layout"},
    {accepted, "without effect: sharded weights have one implementation here, with two buffers", "",
     "megatron-fsdp-version={1,2} fsdp-manual-registration create-all-gather-group "
     "megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer "
     "fsdp-double-buffer fsdp-db-use-persist-buf-on-alloc-fail"},
    {refused, "chooses a type of its own for sharded runs, which is not in this version",
     "leave it out: main weights are fp32", "megatron-fsdp-main-params-dtype=fp32;auto"},
    {accepted, "without effect: gradients travel in the type in which they are accumulated", "",
     "megatron-fsdp-grad-comm-dtype={auto,fp32,bf16,fp16}"},
    {refused, "shards weights over instances as well, which is one instance here",
     "use --zero-stage 3 without --num-distributed-optimizer-instances",
     "enable-full-sharding-in-hsdp"},
    {refused, "is not in this version: gradients of one run accumulate in one type",
     "leave --grad-reduce-in-bf16 out to accumulate all in fp32",
     "ddp-param-name-patterns-for-fp32-local-accumulation+=- "
     "param-name-patterns-for-fp32-local-accumulation+=-"},
    {accepted, "without effect: the loss is always computed in fp32", "", "fp16-lm-cross-entropy"},
    {accepted, "without effect: there is one checkpoint format, with checksums and for any layout",
     "",
     "non-persistent-local-ckpt-algo={fully_parallel,atomic} "
     "async-strategy={nvrx,mcore} use-persistent-ckpt-worker async-ckpt-cpu-priority=* "
     "async-ckpt-io-priority=* async-ckpt-use-cpu-shm auto-detect-ckpt-format "
     "no-ckpt-fully-parallel-save ckpt-fully-parallel-load "
     "ckpt-fully-parallel-load-exchange-algo={broadcast,gather_rounds,gather_object} "
     "ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-save-process-group={dp,ep_dp} "
     "ckpt-fully-parallel-load-process-group={dp,ep_dp} ckpt-assume-constant-structure "
     "no-ckpt-load-validate-sharding-integrity^ dist-ckpt-save-pre-mcore-014 "
     "dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient "
     "use-dist-ckpt dist-ckpt-format=* dist-ckpt-workers=* verify-integrity "
     "ckpt-drop-redundant-extra-state no-save-tokenizer-assets^ use-mp-args-from-checkpoint-args "
     "no-use-tokenizer-model-from-checkpoint-args^"},
    {accepted, "without effect: there is no Python, no GPU cache and no worker process", "",
     "manual-gc manual-gc-interval=* no-manual-gc-eval^ empty-unused-memory-level={0,1,2} "
     "exit-signal-handler-for-dataloader no-pin-cpu-grads no-pin-cpu-params train-sync-interval=* "
     "num-dataset-builder-threads=* dataloader-fast-cache-load fast-cache-load "
     "defer-npy-index-mmap dataloader-defer-npy-index-mmap trust-remote-code "
     "tokenizer-hf-no-use-fast use-gigatoken disable-msc logging-level=*"},
    {accepted, "without effect: --deepspeed-config and --zero-stage say what a run shards", "",
     "deepspeed no-pipeline-parallel deepspeed-activation-checkpointing"},
    {accepted, "without effect: SIGTERM, SIGUSR1 and SIGINT always save and exit", "",
     "exit-signal-handler exit-signal-handler-for-training"},
    {accepted, "without effect: every metric of the log line goes to the JSON lines file", "",
     "no-one-logger enable-one-logger one-logger-project=* one-logger-run-name=* one-logger-async "
     "app-tag-run-name=* app-tag-run-version=*"},
    {accepted, "without effect: timers never wait for other ranks", "",
     "no-barrier-with-level-1-timing barrier-with-L1-time"},
    {accepted, "without effect: --log-straggler compares the ranks at every --log-interval", "",
     "straggler-detector-window-size=*"},
    {accepted, "without effect: it turns on self-tests inside Megatron-LM's layers", "",
     "test-mode"},
    {accepted,
     "without effect: it chooses the names of layers and checkpoints in Megatron-LM's "
     "post-training tools",
     "",
     "export-te-mcore-model export-default-te-spec export-force-local-attention "
     "export-legacy-megatron"},
    {accepted,
     "without effect: the model has no quantizer, teacher or draft head, and trains without "
     "ModelOpt",
     "", "modelopt-enabled"},
    {refused, "is not in this version: models carry no quantizers, teachers or draft heads",
     "leave it out to train the model itself",
     "export-kv-cache-quant=none export-real-quant-cfg=None;none export-quant-cfg=- "
     "export-kd-teacher-load=- export-offline-model qad-train-target=- freeze-base-for-mtp "
     "export-model-type=GPTModel;HybridModel;MambaModel"},
    {refused, "is not in this version: pretrain reads .bin and .idx files",
     "make them with `megatron preprocess-data`",
     "finetune-hf-dataset=- finetune-data-split=train finetune-data-files+=- "
     "dataset=MMAP;LLama-Pretrain-Idxmap"},
    {refused, "reads labels that Pai-Megatron-Patch prepares",
     "use --sft with conversations in JSON lines", "train-mode=pretrain"},
    {refused, "belongs to a tokenizer of Pai-Megatron-Patch",
     "use --tokenizer-type HuggingFaceTokenizer, --tokenizer-model and --padded-vocab-size",
     "patch-tokenizer-type=- extra-vocab-size=0"},
    {accepted, "without effect: samples have --seq-length tokens", "", "max-padding-length=*"},
    {refused, "is no flag of Megatron-LM", "use --memory-budget 20GB, or auto for what is free",
     "memory-threshold=-"},
    {refused, "is set by Megatron-LM's programs, not by their users", "leave it out",
     "init-method=- output-layer-init-method=- params-dtype=- pipeline-dtype=- autocast-dtype=- "
     "enable-autocast timers=- finalize-model-grads-func=- grad-scale-func=- no-sync-func=- "
     "grad-sync-func=- param-sync-func=- cpu-offloading-context=- moe-token-dropping "
     "embedding-init-method=- quant-recipe=- heterogeneous-block-specs "
     "hetereogenous-dist-checkpoint moe-extended-tp inference-sampling-seed=42 "
     "decoupled-weight-decay=true;True"},
    {accepted,
     "without effect: an older flag of Megatron-LM that chose among its own implementations", "",
     "DDP-impl={local,torch} no-contiguous-buffers-in-local-ddp use-contiguous-buffers-in-ddp "
     "use-contiguous-buffers-in-local-ddp "
     "data-impl={mmap,lazy,cached,infer} mmap-warmup scaled-upper-triang-masked-softmax-fusion "
     "scaled-masked-softmax-fusion no-query-key-layer-scaling no-delay-grad-reduce "
     "delay-param-gather log-batch-size-to-tensorboard "
     "log-learning-rate-to-tensorboard no-log-learnig-rate-to-tensorboard"},
    {refused, "is an older flag of Megatron-LM",
     "give the embedding a stage of its own with --pipeline-model-parallel-layout",
     "standalone-embedding-stage"},
    {refused, "is a flag of a fine-tuning script of its own",
     "give the second data set with --train-data-path and --valid-data-path", "data-path2+=-"},
    {refused, "belongs to ICT, REALM and RETRO, which were removed from Megatron-LM",
     "leave it out",
     "ict-head-size=- biencoder-projection-dim=-;0 biencoder-shared-query-context-model ict-load=- "
     "bert-load=- titles-data-path=- query-in-block-prob=0.1 use-one-sent-docs "
     "evidence-data-path=- retriever-report-topk-accuracies+=- retriever-score-scaling "
     "block-data-path=- embedding-path=- indexer-batch-size=128 indexer-log-interval=1000 "
     "retriever-seq-length=256 sample-rate=1 qa-data-dev=- qa-data-test=- faiss-use-gpu "
     "faiss-match=string faiss-topk-retrievals=100 train-with-neg train-hard-neg=0 "
     "val-av-rank-hard-neg=30 val-av-rank-other-neg=30 retro-project-dir=- retro-add-retriever "
     "retro-cyclic-train-iters=- retro-encoder-layers=2 retro-encoder-hidden-dropout=0.1 "
     "retro-encoder-attention-dropout=0.1 retro-num-neighbors=2 retro-num-retrieved-chunks=2 "
     "retro-attention-gate=1 retro-no-verify-neighbor-count"},
    {refused, "keeps a last batch that is not full", "leave it out: such a batch is left out",
     "keep-last"},
    {refused, "is an older flag of Megatron-LM, for T5",
     "assign the layers of both stacks with --pipeline-model-parallel-layout",
     "pipeline-model-parallel-split-rank=-;0"},
    {accepted, "without effect: `pretrain hybrid` trains such models", "", "is-hybrid-model"},
    {refused, "loads Python code", "choose the architecture with its own flags",
     "spec+=-;local;megatron.core.models.hybrid.hybrid_layer_specs;hybrid_stack_spec;"
     "megatron.core.models.mamba.mamba_layer_specs;mamba_stack_spec"},
    {refused, "is not in this version: weights have no GTP shards",
     "use --tensor-model-parallel-size",
     "tensor-parallel-num-weight-shards=-;0;1 expert-tensor-parallel-num-weight-shards=-;0;1 "
     "gtp-remat-opt-in-modules+=-"},
    {refused, "is a test mode of Megatron-LM's process groups",
     "leave it out; `megatron launch --nproc-per-node N` runs any layout on a CPU",
     "fake-process-group lazy-mpu-init"},
    {accepted, "without effect: buffers of offloaded tensors are reused, and bounded", "",
     "cpu-offloading-retain-pinned-cpu-buffers cpu-offloading-double-buffering "
     "delay-offload-until-cuda-graph fine-grained-offloading-max-inflight-offloads=*"},
    {refused, "is not in this version", "leave it out",
     "delta-offload-bytes-across-pp-ranks=0 moe-paged-stash"},
    {refused, "is not in this version: routes are neither recorded nor replayed", "leave it out",
     "moe-enable-routing-replay moe-routing-trace-path=- moe-routing-trace-max-training-iters=-;0 "
     "moe-routing-trace-capture-logits moe-routing-trace-capture-hidden-states "
     "moe-routing-trace-dump-weights"},
    {refused, "counts ranks, and groups of experts are counted here",
     "use --moe-router-num-groups and --moe-router-group-topk",
     "moe-router-topk-limited-devices=-;0"},
    {refused, "is not in this version", "use --moe-router-force-load-balancing",
     "moe-router-force-biased=-;0"},
    {refused, "is not in this version: experts compute with 16 bits or more",
     "leave it out, and use --bf16", "moe-dispatch-fwd-dtype=bf16 moe-combine-bwd-dtype=bf16"},
    {accepted,
     "without effect: experts compute with 16 bits or more, whose GEMMs take any number of tokens",
     "", "moe-router-padding-for-quantization moe-router-padding-for-fp8"},
    {refused,
     "is not in this version: each expert has weights of its own, gates before linear units",
     "leave it out, with the same results",
     "moe-single-grouped-weight moe-single-grouped-bias moe-shared-expert-glu-interleave-size=-;0 "
     "moe-mlp-glu-interleave-size=-;0"},
    {refused, "is not in this version: the capacity is that of an expert, not of a rank",
     "use --moe-expert-capacity-factor", "moe-expert-rank-capacity-factor=-;0"},
    {refused, "is not in this version: multi-token prediction trains all weights", "leave it out",
     "mtp-detach-heads mtp-hsm"},
    {refused, "is not in this version",
     "see --window-size, --qk-layernorm and --attention-dropout for what attention can do",
     "mrope-section+=-;0 use-kitchen-attention use-kitchen"},
    {refused, "is not in this version",
     "see --swiglu, --geglu and --activation for what the MLP can do",
     "mlp-chunks-for-prefill=1 mlp-chunks-for-training=1"},
    {refused,
     "is not in this version: layers are those of --hybrid-layer-pattern, with states in fp32",
     "give their order with --hybrid-layer-pattern, or leave it out",
     "enable-mhc-connections gdp-num-householder=3 gdp-cutedsl-kernel "
     "gdp-num-chunk-states-to-recompute=2 heterogeneous-layers-config-path=- "
     "heterogeneous-layers-config-encoded-json=- mamba-training-ssm-states-dtype=-;fp32 "
     "use-legacy-models"},
    {refused, "is not in this version", "set --init-method-std and --lr for the width", "use-mup"},
    {refused, "is not in this version", "use --bf16",
     "fp8-format=- fp8=- fp8-e4m3 fp8-hybrid fp8-output-proj fp4-format=- fp4=- "
     "fp4-param-gather fp4-param fp8-param-gather fp8-param "
     "te-precision-config-file=- output-logit-dtype=-;fp32 reuse-grad-buf-for-mxfp8-param-ag"},
    {accepted,
     "without effect: steps run without CUDA graphs in this version, with the same results", "",
     "enable-cuda-graph use-cuda-graph external-cuda-graph cuda-graph-use-single-mempool "
     "cuda-graph-retain-backward-graph "
     "cuda-graph-impl={none,local,transformer_engine,full_iteration} "
     "inference-cuda-graph-scope={none,layer,block} "
     "cuda-graph-scope+=* cuda-graph-modules+=* moe-pad-experts-for-cuda-graph-inference"},
    {refused, "is not in this version", "use --optimizer adam or sgd",
     "freeze-all-layers dump-param-to-param-group-map=-"},
    {refused, "is not in this version", "leave it out", "onnx-safe=-;0;false vision-pretraining"},
    {refused, "is not in this version", "look into a checkpoint with `megatron checkpoint inspect`",
     "save-params-interval=-;0 save-activations-interval=-;0 save-tokens-per-expert-interval=-;0 "
     "save-wgrads-interval=-;0 save-dgrads-interval=-;0 config-logger-dir=-"},
    {refused, "is not in this version", "leave it out: checkpoints are whole, under --save",
     "load-main-params-from-ckpt override-ckpt-iteration=-;0 ckpt-pg-tensors-cache-path=- "
     "ckpt-pg-tensors-cache-create no-strict-fsdp-dtensor-load^"},
    {accepted,
     "without effect: loading is always strict, every weight of the model must be in the "
     "checkpoint",
     "",
     "dist-ckpt-strictness={assume_ok_unexpected,log_unexpected,log_all,raise_unexpected,raise_all,"
     "return_unexpected,return_all,ignore_all}"},
    {refused, "is not in this version", "use `megatron convert`",
     "ckpt-convert-format=- ckpt-convert-save=- ckpt-convert-update-legacy-dist-opt-format"},
    {refused, "is not in this version", "leave it out", "per-dataset-sequences-path=- enable-msc"},
    {refused,
     "is not in this version: the vocabulary is padded by --make-vocab-size-divisible-by, and "
     "padded rows are neither trained nor saved",
     "use --vocab-size, --padded-vocab-size and --make-vocab-size-divisible-by",
     "no-pad-vocab-size^"},
    {accepted, "without effect: --tokenizer-special-tokens names the special tokens", "",
     "tiktoken-special-tokens+=*"},
    {accepted, "without effect: no special tokens are added to a SentencePiece model", "",
     "tokenizer-sentencepiece-legacy"},
    {refused, "is not in this version: a SentencePiece model treats white space as it was trained",
     "leave it out", "no-tokenizer-sentencepiece-ignore-extra-whitespaces^"},
    {accepted, "without effect: --profile always records every operator with its shapes", "",
     "use-pytorch-profiler pytorch-profiler-collect-shapes record-shapes nvtx-ranges"},
    {accepted, "without effect: energy is not measured in this version", "", "log-energy"},
    {refused, "is not in this version", "use --profile, or --log-memory for the memory",
     "pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra record-memory-history "
     "memory-snapshot-path=snapshot.pickle"},
    {refused, "is not in this version",
     "loss and gradients are checked for NaN and infinity at every step",
     "gpu-sniff-test-interval=-;0"},
    {refused, "is not in this version",
     "use --exit-duration-in-mins; SIGTERM, SIGUSR1 and SIGINT always save and exit",
     "adlr-autoresume adlr-autoresume-interval=1000"},
    {accepted,
     "without effect: ranks that end or hang are noticed by the launchers and by the other ranks "
     "(--hang-warning-seconds, --distributed-timeout-minutes, `megatron launch --grace-seconds`), "
     "and memory of the GPU that was used is used again",
     "",
     "inprocess-monitor-thread-interval=1 inprocess-monitor-process-interval=1 "
     "inprocess-progress-watchdog-interval=1 inprocess-heartbeat-interval=30 "
     "inprocess-soft-timeout=60 inprocess-hard-timeout=90 inprocess-heartbeat-timeout=60 "
     "inprocess-barrier-timeout=120 inprocess-completion-timeout=120 inprocess-last-call-wait=1 "
     "inprocess-termination-grace-time=1 inprocess-empty-cuda-cache"},
    {refused, "is not in this version",
     "use `megatron launch --nnodes MIN:MAX`: hosts above MAX wait as spares, and one takes the "
     "place of a host that is lost",
     "inprocess-granularity=node inprocess-active-world-size=1"},
    {refused, "is not in this version: a run does not break itself",
     "leave it out; `megatron chaos -- launch … -- pretrain …` breaks ranks from outside",
     "fault-injector-ranks=- fault-injector-num-ranks=-;0 fault-injector-fault-types=- "
     "fault-injector-fault-probabilities=- fault-injector-fault-delay=-;0 "
     "fault-injector-delay-start-iteration=-;0 fault-injector-mtti-seconds=-;0 "
     "fault-injector-offset-seconds=-;0 fault-injector-seed=-;0"},
    {refused, "is not in this version: no inspector's server runs",
     "use --prometheus-port to look at a run from outside", "run-workload-inspector-server"},
    {accepted,
     "without effect: nothing is sent to Weights & Biases; metrics.jsonl under --save or "
     "--tensorboard-dir holds every metric",
     "", "wandb-project=* wandb-exp-name=* wandb-save-dir=* wandb-entity=*"},
    {refused, "is not in this version: nothing is sent over the network",
     "leave it out: metrics.jsonl holds every metric, and --prometheus-port serves them",
     "otel-enabled"},
    {refused, "is not in this version: pretrain trains on text", "leave it out",
     "perform-rl-step rl-profile"},
    {refused, "is not in this version", "leave it out", "logits-save-dir=- logits-load-dir=-"},
    {accepted, "without effect: requests are always batched continuously, with the same texts", "",
     "inference-dynamic-batching use-legacy-static-engine"},
    {accepted,
     "without effect: --inference-dynamic-batching-max-tokens bounds a pass, and the memory of the "
     "KV cache bounds what runs together",
     "", "inference-batch-times-seqlen-threshold=* max-tokens-to-oom=*"},
    {accepted, "without effect: a block of the KV cache has 128 positions", "",
     "inference-dynamic-batching-block-size=*"},
    {accepted,
     "without effect: of the prefixes that nobody uses the least recently used is evicted first, "
     "and blocks have one memory, beside that of "
     "--inference-dynamic-batching-paused-buffer-size-gb",
     "",
     "inference-dynamic-batching-unified-memory-level={0,1} "
     "inference-dynamic-batching-prefix-caching-eviction-policy={ref_zero,lru}"},
    {refused,
     "is not in this version: log-probabilities are the model's, before temperature and filters",
     "leave it out", "inference-dynamic-batching-logprobs-mode=raw_logprobs"},
    {accepted, "without effect: it tunes Megatron-LM's inference engine", "",
     "inference-dynamic-batching-buffer-guaranteed-fraction=* "
     "inference-dynamic-batching-buffer-overflow-factor=* inference-dynamic-batching-chunk-size=* "
     "inference-dynamic-batching-max-requests-override=* "
     "inference-dynamic-batching-max-tokens-override=* inference-max-batch-size=* "
     "inference-dynamic-batching-mamba-memory-ratio=* inference-dynamic-batching-num-cuda-graphs=* "
     "inference-dynamic-batching-track-paused-request-events "
     "inference-dynamic-batching-track-generated-token-events decode-only-cuda-graphs "
     "inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens=* "
     "inference-dynamic-batching-prefix-caching-coordinator-policy={longest_prefix,"
     "first_prefix_block,load_balanced} "
     "inference-dynamic-batching-prefix-caching-routing-alpha=* "
     "inference-dynamic-batching-prefix-caching-mamba-gb=* "
     "inference-dynamic-batching-cuda-graph-mixed-prefill-count=* "
     "inference-dynamic-batching-cuda-graph-sizing-distribution={exponential,linear} "
     "inference-dynamic-batching-sampling-backend={torch,flashinfer} "
     "use-same-sampling-seed-across-dp-ranks "
     "inference-dynamic-batching-async-sched-mode={legacy,async} inference-logging-step-interval=* "
     "inference-text-gen-server-logging? inference-wandb-logging? inference-coordinator-port=* "
     "mamba-inference-conv-states-dtype={bf16,fp16,fp32} "
     "mamba-inference-ssm-states-dtype={bf16,fp16,fp32} "
     "inference-use-synchronous-zmq-collectives? inference-disable-ep-consensus? "
     "nccl-all-reduce-for-prefill inference-fuse-tp-communication "
     "inference-disable-triton-nvls-kernels "
     "inference-grouped-gemm-backend={flashinfer,torch,vllm} "
     "inference-moe-disable-fused-quant-kernels inference-moe-token-dispatcher-type={nccl,nvls}"},
    {refused, "is not in this version: every rank of a model prefills and decodes",
     "use --tensor-model-parallel-size and --pipeline-model-parallel-size", "inference-shards=-"},
    {accepted,
     "without effect: BERT embeds no texts while it trains, and `megatron serve` answers "
     "/v1/embeddings",
     "", "output-bert-embeddings bert-embedder-type={megatron,huggingface}"},
    {accepted, "without effect: it tunes a feature that no flag of this run asks for", "",
     "export-kd-teacher-model-config=* export-kd-teacher-ckpt-format=* export-kd-cfg=* "
     "cache-mla-latents cache-kv-in-compressed-form mtp-hybrid-override-pattern=* mtp-standalone "
     "dsa-indexer-n-heads=* "
     "dsa-indexer-head-dim=* dsa-indexer-topk=* dsa-indexer-topk-freq=* "
     "dsa-indexer-skip-topk-offset=* dsa-indexer-loss-coeff=* dsa-indexer-use-sparse-loss "
     "dsa-kernel-backend=* dsa-indexer-rope-interleaved no-dsa-indexer-rotate-activation^ "
     "no-dsa-indexer-scoring-relu^ dsa-indexer-k-norm-epsilon=* dsa-indexer-k-norm-fp32 "
     "mhc-num-residual-streams=* mhc-sinkhorn-iterations=* mhc-init-gating-factor=* "
     "mhc-recompute-layer-num=* mup-width-mult=* mup-base-hidden-size=* mup-embedding-mult=* "
     "mup-output-mult=* mup-base-head-dim=* mup-attn-scale-power=* fp8-recipe=* "
     "fp8-quantizer-factory=* fp8-margin=* fp8-interval=* fp8-amax-history-len=* "
     "fp8-amax-compute-algo=* no-fp8-wgrad^ fp8-dot-product-attention fp8-multi-head-attention "
     "tp-only-amax-red activation-func-fp8-input-store first-last-layers-bf16 "
     "num-layers-at-start-in-bf16=* num-layers-at-end-in-bf16=* fp4-recipe=* "
     "fp4-quantizer-factory=* keep-fp8-transpose-cache muon-momentum=* muon-no-split-qkv "
     "muon-nesterov muon-scale-mode=* muon-fp32-matmul-prec=* muon-coefficient-type=* "
     "muon-num-ns-steps=* muon-tp-mode=* muon-use-syrk muon-extra-scale-factor=* "
     "muon-scalar-optimizer=* lion-beta1=* lion-beta2=* moe-paged-stash-page-size=* "
     "moe-paged-stash-buffer-size-factor-cuda=* moe-paged-stash-buffer-size-factor-cpu=* "
     "moe-router-quantile-balancing-ema=* otel-service-name=* otel-span-groups=* "
     "rl-prompts-per-eval=* grpo-prompts-per-step=* grpo-group-size=* rl-generation-lag=* "
     "rl-max-inflight-requests=* rl-submission-granularity=* rl-consumption-granularity=* "
     "rl-durable-rollout-bank rl-rollout-bank-dir=* rl-rollout-bank-max-bytes=* grpo-iterations=* "
     "grpo-clamp-eps-lower=* grpo-clamp-eps-upper=* grpo-kl-beta=* grpo-entropy-term-weight=* "
     "grpo-filter-groups-with-same-reward langrl-env-config=* rl-default-temperature=* "
     "rl-default-top-p=* rl-default-top-k=* rl-offload-optimizer-during-inference "
     "rl-kv-cache-management-mode=* rl-persist-cuda-graphs? rl-partial-rollouts? "
     "rl-inference-logprobs-is-correction? rl-importance-sampling-truncation-coef=* "
     "rl-use-sequence-packing? rl-sequence-packing-max-sequences-per-bin=* "
     "rl-sequence-packing-algo=* rl-training-cuda-graphs? "
     "rl-inference-tensor-model-parallel-size=* rl-inference-pipeline-model-parallel-size=* "
     "rl-inference-expert-model-parallel-size=* rl-inference-expert-tensor-model-parallel-size=* "
     "rl-inference-model-unified-memory-level=* rl-offload-inference-model-weights-when-idle? "
     "refit-method=* rl-verify-model-weights-swap? rl-skip-bos-token? rl-profile-dir=* "
     "rl-inference-parsers+=* logits-save-top-k=* logits-save-top-p=* logits-save-top-p-min-k=* "
     "logits-save-dtype=* logits-load-decode-threads=* logits-load-prefetch-factor=* "
     "logits-load-msc-prefetch-depth=* logits-load-kd-loss-alpha=* logits-load-ignore-errors "
     "img-h=* img-w=* num-channels=* patch-dim=* classes-fraction=* data-per-class-fraction=* "
     "head-lr-mult=* vision-pretraining-type=* vision-backbone-type=* swin-backbone-type=* "
     "mask-type=* mask-factor=* iter-per-epoch=* dino-local-img-size=* dino-local-crops-number=* "
     "dino-head-hidden-size=* dino-bottleneck-size=* dino-freeze-last-layer=* "
     "dino-norm-last-layer dino-warmup-teacher-temp=* dino-teacher-temp=* "
     "dino-warmup-teacher-temp-epochs=*"},
};

}  // namespace

std::span<const KnownFlags> known_flags() { return kKnownFlags; }

}  // namespace megatron
