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
HfFamily qwen3_next();
HfFamily qwen3_5_text();
HfFamily qwen3_5_moe_text();

// mistral.cpp
HfFamily mistral();
HfFamily ministral();
HfFamily ministral3();
HfFamily mixtral();

// olmo.cpp
HfFamily olmoe();
HfFamily olmo2();
HfFamily olmo3();
HfFamily flex_olmo();
HfFamily olmo_hybrid();

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
HfFamily hunyuan_v1_moe();

// smollm3.cpp
HfFamily smollm3();

// exaone.cpp
HfFamily exaone4();

// gpt_oss.cpp
HfFamily gpt_oss();

// llama4.cpp
HfFamily llama4_text();

// glm.cpp
HfFamily glm();
HfFamily glm4();
HfFamily glm4_moe();
HfFamily solar_open();
HfFamily dots1();

// minimax.cpp
HfFamily minimax_m2();

// ernie.cpp
HfFamily ernie4_5();
HfFamily ernie4_5_moe();

// gpt_neox.cpp
HfFamily gpt_neox();
HfFamily phi();

// nemotron.cpp
HfFamily nemotron();
HfFamily stablelm();

// granite.cpp
HfFamily granite();
HfFamily granitemoe();
HfFamily granitemoehybrid();

// mamba.cpp
HfFamily mamba2();
HfFamily nemotron_h();
HfFamily bamba();

// t5.cpp
HfFamily t5();
HfFamily mt5();
HfFamily umt5();

// cohere.cpp
HfFamily cohere();
HfFamily cohere2();

// bert.cpp
HfFamily bert();
HfFamily megatron_bert();
HfFamily roberta();

}  // namespace megatron::families
