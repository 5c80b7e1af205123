// Frequencies printed by the real transformers and megatron-core (fixtures/rope_frequencies.json,
// made by tests/parity/make_rope_fixtures.py).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/rotary.h"

namespace megatron {
namespace {

Json fixture(const char* package) {
  static const Json all =
      parse_json(read_file(MEGATRON_SOURCE_DIR "/tests/ops/fixtures/rope_frequencies.json"),
                 "rope_frequencies.json");
  return all.at(package);
}

template <class T>
void take(const Json& settings, const char* key, T& member) {
  if (settings.contains(key)) member = settings.at(key);
}

/// Both compute in float32, in different orders.
constexpr double kRelative = 2e-6;

void expect_near(const at::Tensor& values, const Json& expected) {
  ASSERT_EQ(values.numel(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double want = expected[static_cast<std::size_t>(i)];
    EXPECT_NEAR(values[i].item<double>(), want, kRelative * std::abs(want)) << "channel " << i;
  }
}

TransformerConfig config_of_transformers(const Json& entry) {
  const Json& rope = entry.at("rope_parameters");
  TransformerConfig config;
  config.kv_channels = entry.at("head_dim");
  take(rope, "rope_theta", config.rotary_base);
  take(rope, "factor", config.rope_scaling_factor);
  take(rope, "low_freq_factor", config.rope_low_freq_factor);
  take(rope, "high_freq_factor", config.rope_high_freq_factor);
  take(rope, "original_max_position_embeddings", config.rope_original_max_position_embeddings);
  take(rope, "beta_fast", config.yarn_beta_fast);
  take(rope, "beta_slow", config.yarn_beta_slow);
  take(rope, "mscale", config.yarn_mscale);
  take(rope, "mscale_all_dim", config.yarn_mscale_all_dim);
  take(rope, "truncate", config.yarn_correction_range_round_to_int);
  if (rope.contains("attention_factor")) config.yarn_attention_factor = rope.at("attention_factor");
  const std::string type = rope.at("rope_type");
  config.rope_scaling_type = type == "linear"   ? RopeScaling::linear
                             : type == "llama3" ? RopeScaling::llama3
                             : type == "yarn"   ? RopeScaling::yarn
                                                : RopeScaling::none;
  return config;
}

TEST(RotaryFrequencies, EqualTransformers) {
  const Json entries = fixture("transformers");
  EXPECT_EQ(entries.size(), 17u);
  for (const Json& entry : entries) {
    SCOPED_TRACE(entry.at("rope_parameters").dump());
    const RotaryFrequencies frequencies = rotary_frequencies(config_of_transformers(entry));
    expect_near(frequencies.inverse, entry.at("inv_freq"));
    EXPECT_NEAR(frequencies.concentration, entry.at("attention_factor"), 1e-12);
  }
}

TEST(RotaryFrequencies, EqualMegatronCoresYarn) {
  const Json entries = fixture("megatron_yarn");
  EXPECT_EQ(entries.size(), 5u);
  for (const Json& entry : entries) {
    const Json& settings = entry.at("settings");
    SCOPED_TRACE(settings.dump());
    TransformerConfig config;
    config.rope_scaling_type = RopeScaling::yarn;
    take(settings, "kv_channels", config.kv_channels);
    take(settings, "rotary_base", config.rotary_base);
    take(settings, "scaling_factor", config.rope_scaling_factor);
    take(settings, "original_max_position_embeddings",
         config.rope_original_max_position_embeddings);
    take(settings, "mscale", config.yarn_mscale);
    take(settings, "mscale_all_dim", config.yarn_mscale_all_dim);
    take(settings, "beta_fast", config.yarn_beta_fast);
    take(settings, "beta_slow", config.yarn_beta_slow);
    take(settings, "correction_range_round_to_int", config.yarn_correction_range_round_to_int);
    const RotaryFrequencies frequencies = rotary_frequencies(config);
    expect_near(frequencies.inverse, entry.at("inv_freq"));
    EXPECT_NEAR(frequencies.concentration, entry.at("concentration_factor"), 1e-12);
  }
}

TEST(RotaryFrequencies, EqualMegatronCoresRope) {
  const Json entries = fixture("megatron_rope");
  EXPECT_EQ(entries.size(), 4u);
  for (const Json& entry : entries) {
    const Json& settings = entry.at("settings");
    SCOPED_TRACE(settings.dump());
    TransformerConfig config;
    take(settings, "kv_channels", config.kv_channels);
    take(settings, "rotary_base", config.rotary_base);
    take(settings, "rotary_percent", config.rotary_percent);
    if (settings.contains("rope_scaling")) {
      config.rope_scaling_type = RopeScaling::llama3;
      take(settings, "rope_scaling_factor", config.rope_scaling_factor);
    }
    const bool is_linear = settings.contains("seq_len_interpolation_factor");
    if (is_linear) {
      config.rope_scaling_type = RopeScaling::linear;
      take(settings, "seq_len_interpolation_factor", config.rope_scaling_factor);
    }
    const at::Tensor inverse = rotary_frequencies(config).inverse;
    // megatron-core divides the positions by the interpolation factor, not the frequencies.
    expect_near(is_linear ? inverse * config.rope_scaling_factor : inverse, entry.at("inv_freq"));
    const at::Tensor angles = inverse * 5;  // repeated for both halves, or doubled in place
    const bool interleaved = settings.value("rotary_interleaved", false);
    expect_near(interleaved ? angles.repeat_interleave(2) : angles.repeat({2}),
                entry.at("angles_of_position_5"));
  }
}

}  // namespace
}  // namespace megatron
