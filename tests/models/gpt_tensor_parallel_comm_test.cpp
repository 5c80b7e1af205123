// Each layer of a GPT sends over tp the calls and bytes that theory predicts (Korthikanti et al.
// 2022, §4.2): an all-reduce of s·b·h after attention and MLP, forward and backward. With sequence
// parallelism, an all-gather and a reduce-scatter replace each, and backward has one more
// all-gather for the input that was saved as a slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/tensor_parallel.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

constexpr std::int64_t kSequence = 8, kSamples = 2, kTensorBytes = kSequence * kSamples * 12 * 4,
                       kTokens = kSequence * kSamples;

struct Traffic {
  std::int64_t calls = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};
using Table = std::map<std::pair<std::string, std::string>, Traffic>;  ///< by name and operation

void PrintTo(const Traffic& traffic, std::ostream* out) {
  *out << traffic.calls << " calls, " << traffic.bytes << " bytes";
}

Table take(Communicators& communicators) {
  Table table;
  for (const CommCount& row : communicators.counters().take()) {
    EXPECT_EQ(row.axis, "tp");
    table[{row.what, row.operation}] = {row.calls, row.bytes};
  }
  return table;
}

Traffic hidden(std::int64_t calls) { return {calls, calls * kTensorBytes}; }

/// Runs forward and backward of two layers.
std::pair<Table, Table> traffic_of(const TensorLayout& layout) {
  std::pair<Table, Table> result;
  TransformerConfig config = tiny_gpt();
  const Microbatch batch = patterned_batch(kSamples, kSequence, config.vocab_size);
  on_tensor_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    const auto model = make_gpt_model(config, rank, 8);
    ParamStore store(declared_parameters(*model), {});
    store.initialize(3);
    store.zero_gradients();
    take(communicators);
    const StepOutput output = model->forward_step(batch, /*training=*/true);
    Table forward = take(communicators);
    output.root.backward();
    Table backward = take(communicators);
    if (rank.index == 0) result = {std::move(forward), std::move(backward)};
  });
  return result;
}

TEST(TensorParallelTraffic, OneAllReducePerBlockAndDirection) {
  const auto [forward, backward] = traffic_of({.tp = 2});
  EXPECT_EQ(forward, (Table{{{"word_embeddings", "all_reduce"}, hidden(1)},
                            {{"linear_proj", "all_reduce"}, hidden(2)},
                            {{"linear_fc2", "all_reduce"}, hidden(2)},
                            {{"cross_entropy", "all_gather"}, {1, 2 * 2 * kTokens * 4}}}));
  EXPECT_EQ(backward, (Table{{{"linear_qkv", "all_reduce"}, hidden(2)},
                             {{"linear_fc1", "all_reduce"}, hidden(2)},
                             {{"output_layer", "all_reduce"}, hidden(1)}}));
}

TEST(TensorParallelTraffic, GatherAndScatterWithSequenceParallelism) {
  const auto [forward, backward] = traffic_of({.tp = 2, .sequence_parallel = true});
  EXPECT_EQ(forward, (Table{{{"word_embeddings", "reduce_scatter"}, hidden(1)},
                            {{"linear_qkv", "all_gather"}, hidden(2)},
                            {{"linear_proj", "reduce_scatter"}, hidden(2)},
                            {{"linear_fc1", "all_gather"}, hidden(2)},
                            {{"linear_fc2", "reduce_scatter"}, hidden(2)},
                            {{"output_layer", "all_gather"}, hidden(1)},
                            {{"cross_entropy", "all_gather"}, {1, 2 * 2 * kTokens * 4}}}));
  EXPECT_EQ(backward, (Table{{{"linear_qkv", "all_gather"}, hidden(2)},
                             {{"linear_qkv", "reduce_scatter"}, hidden(2)},
                             {{"linear_proj", "all_gather"}, hidden(2)},
                             {{"linear_fc1", "all_gather"}, hidden(2)},
                             {{"linear_fc1", "reduce_scatter"}, hidden(2)},
                             {{"linear_fc2", "all_gather"}, hidden(2)},
                             {{"output_layer", "reduce_scatter"}, hidden(1)},
                             {{"word_embeddings", "all_gather"}, hidden(1)}}));
}

/// The chunks of --tp-comm-overlap send no additional byte.
TEST(TensorParallelTraffic, PiecesCarryTheSameBytes) {
  const auto bytes_of = [](const Table& table) {
    std::int64_t bytes = 0;
    for (const auto& [key, traffic] : table) bytes += traffic.bytes;
    return bytes;
  };
  const auto whole = traffic_of({.tp = 2, .sequence_parallel = true});
  const auto pieces =
      traffic_of({.tp = 2, .sequence_parallel = true, .options = {.overlap_chunks = 3}});
  EXPECT_EQ(bytes_of(pieces.first), bytes_of(whole.first));
  EXPECT_EQ(bytes_of(pieces.second), bytes_of(whole.second));
  EXPECT_EQ(pieces.first.at({"linear_fc2", "reduce_scatter"}).calls, 6);
}

}  // namespace
}  // namespace megatron
