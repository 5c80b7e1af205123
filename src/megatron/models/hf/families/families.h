// The built-in families, by the files that have their tables.
#pragma once

#include "megatron/models/hf/hf_family.h"

namespace megatron::families {

// gpt2.cpp
HfFamily gpt2();

// llama.cpp
HfFamily llama();
HfFamily arcee();

// qwen.cpp
HfFamily qwen2();
HfFamily qwen3();
HfFamily qwen2_moe();
HfFamily qwen3_moe();

// mistral.cpp
HfFamily mistral();
HfFamily mixtral();

// olmo.cpp
HfFamily olmoe();
HfFamily olmo2();
HfFamily olmo3();

// starcoder2.cpp
HfFamily starcoder2();

// deepseek.cpp
HfFamily deepseek_v2();
HfFamily deepseek_v3();
HfFamily kimi_k2();

// gemma.cpp
HfFamily gemma();
HfFamily gemma2();
HfFamily gemma3_text();
HfFamily vaultgemma();

// phi3.cpp
HfFamily phi3();

// seed_oss.cpp
HfFamily seed_oss();

// hunyuan.cpp
HfFamily hunyuan_v1_dense();

// smollm3.cpp
HfFamily smollm3();

// exaone.cpp
HfFamily exaone4();

// gpt_oss.cpp
HfFamily gpt_oss();

// llama4.cpp
HfFamily llama4_text();

}  // namespace megatron::families
