#include "megatron/config/engine_settings.h"

#include "megatron/config/field_table.h"

namespace megatron {

const FieldTable<EngineSettings>& engine_table() {
  using Settings = EngineSettings;
  return field_table<Settings>([](auto& t) {
    t.group("Inference engine");
    t.field("inference_dynamic_batching_max_requests", &Settings::max_requests,
            "largest number of texts that are computed together; none: 256")
        .at_least(1)
        .alias("inference-max-requests")
        .alias("max-num-seqs");
    t.field("inference_dynamic_batching_max_tokens", &Settings::max_tokens,
            "largest number of tokens in a pass, at least one for each text; none: 2048")
        .at_least(1)
        .alias("max-num-batched-tokens");
    t.field("inference_max_seq_length", &Settings::max_seq_length,
            "refuse a prompt that has more tokens than this with its new ones; none: what the "
            "model and the KV cache have room for, of serve at most the model's context")
        .at_least(1)
        .alias("max-model-len");
    t.field("inference_dynamic_batching_buffer_size_gb", &Settings::buffer_size_gb,
            "most memory for the KV cache of a rank, in GiB; none: 90 % of what is free")
        .above(0);
    t.field("inference_dynamic_batching_paused_buffer_size_gb", &Settings::paused_buffer_size_gb,
            "host memory, in GiB, to which a text's keys and values are copied when others take "
            "its place, instead of being computed again; none: 0")
        .at_least(0);
    t.field("kv_cache_dtype", &Settings::kv_cache_dtype,
            "type of the KV cache: auto, that of the model, or 8 bits and a scale for each key and "
            "value, which changes the results a little")
        .choices({"auto", "int8", "fp8_e4m3"});
    t.field("enable_chunked_prefill", &Settings::chunked_prefill,
            "compute each prompt in one pass, not in parts beside the next tokens of other texts");
    t.field(
        "inference_dynamic_batching_prefix_caching", &Settings::prefix_caching,
        "forget the keys and values of texts that have ended, which prompts that begin alike could "
        "use");
    t.field("batch_invariant_mode", &Settings::batch_invariant_mode,
            "refuse types, devices and options for which the bits of a text may depend on what is "
            "computed beside it; on a CPU they never do in bf16 and fp32, recurrent layers apart");
  });
}

}  // namespace megatron
