// Beam search against transformers on a table of logits (fixtures/beams.json, written by
// tests/parity/make_sampling_fixtures.py).
#include "megatron/inference/sampling/beam_search.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/inference/generator.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t kVocabulary = 12, kPeriod = 3;

/// The logits of a token are a row of a table, by its position and id.
class TableModel : public SuccessorModel {
 public:
  explicit TableModel(const std::vector<float>& table)
      : SuccessorModel(kVocabulary),
        table_(at::tensor(table).view({kPeriod, kVocabulary, kVocabulary})) {}

  StageOutput forward_chunk(std::int64_t, const Pass& pass, const Activations&) override {
    const at::Tensor positions = position_ids(pass).view({-1}),
                     tokens = pass.microbatch.at("tokens").view({-1});
    std::vector<at::Tensor> rows;
    for (std::int64_t i = 0; i < tokens.numel(); ++i)
      rows.push_back(
          table_[positions[i].item<std::int64_t>() % kPeriod][tokens[i].item<std::int64_t>()]);
    at::Tensor logits = at::stack(rows).unsqueeze(1);
    num_rows += tokens.numel();
    if (pass.wants == Wants::last_logits) logits = last_rows(logits, pass, pass.num_logits);
    return {.result = logits.reshape({-1, kVocabulary})};
  }
  std::int64_t num_rows = 0;  ///< tokens of all passes

 private:
  at::Tensor table_;
};

struct Fixture {
  Json json = read_json(MEGATRON_SOURCE_DIR "/tests/inference/fixtures/beams.json");
  std::vector<float> table = json.at("table").get<std::vector<float>>();
};

TEST(BeamSearch, FindsTheTextsOfTransformers) {
  const Fixture fixture;
  TableModel model(fixture.table);
  for (const Json& one : fixture.json.at("cases")) {
    SCOPED_TRACE(one.dump());
    const SamplingParams params{.repetition_penalty = one.at("repetition_penalty"),
                                .max_new_tokens = one.at("max_new_tokens"),
                                .stop_token_ids = one.at("stop").get<Ids>(),
                                .n = one.at("num_beams"),
                                .num_beams = one.at("num_beams"),
                                .length_penalty = one.at("length_penalty")};
    const Ids prompt = one.at("prompt").get<Ids>();
    const Prompt alone{prompt};
    const std::vector<Generation> found =
        Generator(model, params).generate_all({&alone, 1}).front();
    const auto scores = one.at("scores").get<std::vector<double>>();
    ASSERT_EQ(found.size(), scores.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      Ids ids = one.at("ids").at(i).get<Ids>();  // with the stop token
      const bool has_stopped = std::ranges::count(params.stop_token_ids, ids.back()) > 0;
      if (has_stopped) ids.pop_back();
      EXPECT_EQ(found[i].ids, ids) << i;
      EXPECT_EQ(found[i].finish_reason, has_stopped ? FinishReason::stop : FinishReason::length);
      EXPECT_NEAR(found[i].score, scores[i], 1e-5 * std::max(1.0, std::abs(scores[i])));
    }
  }
}

// The best texts after the first step are both of the first beam: [6, 7] and [6, 11].
TEST(BeamSearch, EveryTokenIsFedOnce) {
  std::vector<float> table;
  for (std::int64_t i = 0; i < kPeriod * kVocabulary; ++i)
    for (std::int64_t next = 0; next < kVocabulary; ++next)
      table.push_back(static_cast<float>(next == (i + 1) % kVocabulary ? 20 : next));
  TableModel model(table);
  const Ids prompt{3, 4, 5};
  const Prompt alone{prompt};
  Generator(model, {.max_new_tokens = 3, .num_beams = 2}).generate_all({&alone, 1});
  EXPECT_EQ(model.num_rows, 3 + 2 + 2);
}

TEST(BeamSearch, FewTokensGiveFewTexts) {
  BeamSearch search({.num_beams = 4}, 1);
  const std::vector<float> row = {-1, -0.5f};
  const std::span<const float> rows[] = {row};
  search.step(rows);
  EXPECT_TRUE(search.running().empty());
  ASSERT_EQ(search.finished().size(), 2u);
  EXPECT_EQ(search.finished()[0].ids, Ids{1});
  EXPECT_EQ(search.finished()[1].ids, Ids{0});
}

}  // namespace
}  // namespace megatron
