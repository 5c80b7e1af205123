// Prints what smoothed n-gram models of the training split lose on the validation split, in nats
// per byte: the numbers a GPT has to beat.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/run_command.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/split.h"
#include "ngram_model.h"

namespace megatron::demo {
namespace {

struct Options {
  std::string data_path;
  std::string split = "969, 30, 1";
  bool json = false;
};

const FieldTable<Options>& options_table() {
  return field_table<Options>([](auto& t) {
    t.about(
        "Interpolated Kneser–Ney models of 3, 4 and 5 bytes, counted on the training split and "
        "measured on the validation split.");
    t.group("Data");
    t.field("data_path", &Options::data_path,
            "preprocessed bytes: the prefix of a .bin and .idx pair")
        .required()
        .value_name("PREFIX");
    t.field("split", &Options::split, "weights of training, validation and test, as for pretrain");
    t.group("Output");
    t.field("json", &Options::json, "print one JSON object");
  });
}

std::vector<std::int64_t> split_tokens(const IndexedDataset& dataset, const std::string& split,
                                       Split part) {
  const auto bookends = parse_split(split)[static_cast<std::size_t>(part)];
  if (!bookends)
    throw UserError({"--split", split,
                     "give the " + std::string(split_name(part)) + " split a weight above 0"});
  const auto [begin, end] = split_range(*bookends, dataset.num_sequences());
  const auto lengths = dataset.sequence_lengths();
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::size_t old_size = tokens.size();
    tokens.resize(old_size + static_cast<std::size_t>(lengths[static_cast<std::size_t>(i)]));
    dataset.read(i, 0, std::span(tokens).subspan(old_size));
  }
  if (tokens.empty())
    throw UserError({dataset.name(),
                     "no token in the " + std::string(split_name(part)) + " split " + split,
                     "give it a larger weight"});
  return tokens;
}

int run(std::span<const std::string> args) {
  Options options;
  parse_command_line(options_table(), args, options, "ngram_baseline");
  const IndexedDataset dataset(options.data_path);
  const auto train = split_tokens(dataset, options.split, Split::train);
  const auto valid = split_tokens(dataset, options.split, Split::valid);
  const std::int64_t vocab_size = std::max(std::ranges::max(train), std::ranges::max(valid)) + 1;
  if (vocab_size > kMaxVocabulary) {
    throw UserError({options.data_path, "ids up to " + std::to_string(vocab_size - 1),
                     "preprocess it with --tokenizer-type ByteTokenizer"});
  }
  const NgramModels models(train, vocab_size, kMaxOrder);
  OrderedJson result = {{"train_tokens", train.size()}, {"valid_tokens", valid.size()}};
  for (int order = 3; order <= kMaxOrder; ++order)
    result[std::to_string(order) + "-gram"] = models.loss(valid, order);
  if (options.json) {
    std::cout << result.dump() << "\n";
    return 0;
  }
  std::printf("trained on %zu bytes, measured on %zu\n", train.size(), valid.size());
  for (int order = 3; order <= kMaxOrder; ++order) {
    const auto name = std::to_string(order) + "-gram";
    std::printf("%s  %.4f nats per byte\n", name.c_str(), result[name].get<double>());
  }
  return 0;
}

}  // namespace
}  // namespace megatron::demo

int main(int argc, char** argv) {
  return megatron::run_command("ngram_baseline", [&] {
    return megatron::demo::run(std::vector<std::string>(argv + 1, argv + argc));
  });
}
