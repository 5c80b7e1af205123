// Implements `megatron fill-mask`: prints the most likely tokens in place of the masks of texts.
#include <iostream>
#include <string>
#include <vector>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/run_command.h"
#include "megatron/inference/mask_filler.h"

namespace megatron {
namespace {

using Filled = std::vector<std::vector<LikelyToken>>;

std::string table_text(const std::string& text, const MaskedText& masked, const Filled& filled,
                       const Tokenizer& tokenizer) {
  std::string table = text + '\n';
  for (std::size_t i = 0; i < filled.size(); ++i) {
    table += format("  mask %zu, token %lld\n", i + 1, static_cast<long long>(masked.masks[i]));
    for (const auto& [id, probability] : filled[i])
      table += format("    %8.4f %%  ", probability * 100) + tokenizer.token(static_cast<int>(id)) +
               '\n';
  }
  return table;
}

std::string json_text(const std::string& text, const MaskedText& masked, const Filled& filled,
                      const Tokenizer& tokenizer) {
  JsonText masks = JsonText::array();
  for (std::size_t i = 0; i < filled.size(); ++i) {
    JsonText tokens = JsonText::array();
    for (const auto& [id, probability] : filled[i])
      tokens.push_back({{"id", id},
                        {"token", tokenizer.token(static_cast<int>(id))},
                        {"probability", probability}});
    masks.push_back({{"position", masked.masks[i]}, {"tokens", std::move(tokens)}});
  }
  return JsonText{{"text", text}, {"ids", masked.ids}, {"masks", std::move(masks)}}.dump() + '\n';
}

int fill_mask_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const FillMaskOptions options = read_fill_mask_options(args, world.environment().world_size);
  InferenceRank rank(world, options, flags_of(fill_mask_table().set(), &options), families);
  require_masked_model(rank.model());  // before its tokenizer is blamed for having no mask
  const LoadedTokenizer loaded = rank.load_tokenizer(options.tokenizer, options.parsed);
  for (const std::string& text : options.text) {
    const MaskedText masked = masked_text(*loaded.tokenizer, text);
    const Filled filled = fill_masks(rank.model(), masked, options.top_k);
    if (!rank.is_main_rank()) continue;
    std::cout << (options.json ? json_text : table_text)(text, masked, filled, *loaded.tokenizer);
    flush_stdout();
  }
  return 0;
}

}  // namespace

int run_fill_mask(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("fill-mask", [&](World& world) { return fill_mask_as(world, args, families); });
}

}  // namespace megatron
