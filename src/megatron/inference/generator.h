// Generates texts of prompts with an engine (engine.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "megatron/inference/engine.h"

namespace megatron {

/// A prompt of Generator::generate_all().
struct Prompt {
  std::span<const std::int64_t> ids;  ///< at least one
  std::uint64_t index = 0;            ///< selects the random numbers (SamplingSite::prompt)
};

class Generator {
 public:
  using OnToken = std::function<void(std::size_t place, std::int64_t id)>;

  /// `model` must have its weights bound. It and what `options` refers to must outlive the
  /// generator. Beams have no drafts.
  /// UserError when an option is out of range.
  Generator(const ModelRunner& model, SamplingParams params,
            const EngineOptions& options = {.scheduler = {.num_blocks = kMaxBlocks}});

  /// Generates a continuation of one prompt, the first of generate_all(). `on_token` is called with
  /// each new token. Collective over the ranks of the model.
  Generation generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                      const std::function<void(std::int64_t id)>& on_token = nullptr) const;

  /// Generates SamplingParams::n continuations of each prompt: samples in their order, the best
  /// `n` of `best_of` by mean log-probability, or the best beams (fewer if the vocabulary has no
  /// more). Samples share passes, and `on_token` gets their places. Collective like generate().
  std::vector<std::vector<Generation>> generate_all(std::span<const Prompt> prompts,
                                                    const OnToken& on_token = nullptr) const;

  /// Throws a UserError for the first prompt that generate_all() can never continue.
  void check(std::span<const Prompt> prompts) const;

 private:
  /// Adds a request for each prompt, named by its place.
  void add_requests(Engine& engine, std::span<const Prompt> prompts) const;

  ModelRunner model_;
  SamplingParams params_;
  EngineOptions options_;
};

}  // namespace megatron
