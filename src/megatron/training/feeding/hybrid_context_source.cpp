#include "megatron/training/feeding/hybrid_context_source.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/training/feeding/batch_stream.h"
#include "megatron/training/feeding/prefetch_source.h"

namespace megatron {
namespace {

/// A document of a sample.
struct DocumentPart {
  std::size_t sample = 0;  ///< index among the samples of the step
  std::int64_t begin = 0, length = 0;
  std::int64_t ordinal = 0;  ///< packed_ordinal() of sample and document
};

/// Returns the documents of a step's samples, one batch for each sample.
std::vector<DocumentPart> documents_of(const std::vector<Batch>& samples) {
  std::vector<DocumentPart> documents;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    const Batch& batch = samples[sample];
    const std::vector<BatchDocument>& parts = batch.documents.front();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto mask = batch.loss_mask.begin() + parts[i].begin;
      if (std::all_of(mask, mask + parts[i].length, [](float counts) { return counts == 0; }))
        continue;
      documents.push_back(
          {sample, parts[i].begin, parts[i].length,
           packed_ordinal(static_cast<std::int64_t>(sample), static_cast<std::int64_t>(i))});
    }
  }
  return documents;
}

/// The rows of a microbatch over all its ranks, built document by document.
class Rows {
 public:
  void append(const Batch& sample, const DocumentPart& document) {
    const auto copy = [&](const auto& from, auto& to) {
      to.insert(to.end(), from.begin() + document.begin,
                from.begin() + document.begin + document.length);
    };
    begin_sequence(document.ordinal);
    copy(sample.tokens, tokens_);
    copy(sample.labels, labels_);
    copy(sample.position_ids, position_ids_);
    copy(sample.loss_mask, loss_mask_);
  }

  /// Appends rows that count for nothing, as a sequence of their own. Its ordinal is that of the
  /// sequence before it, so that messages name no other sample.
  void append_padding(std::int64_t count) {
    if (count == 0) return;
    begin_sequence(ordinals_.empty() ? 0 : ordinals_.back());
    const std::size_t rows = tokens_.size() + static_cast<std::size_t>(count);
    tokens_.resize(rows, 0);
    labels_.resize(rows, 0);
    loss_mask_.resize(rows, 0.0f);
    position_ids_.resize(rows, 0);
  }

  std::int64_t size() const { return std::ssize(tokens_); }

  /// Returns what one of the ranks that share the rows holds.
  Microbatch microbatch(std::int64_t rank, HybridContext context) {
    begins_.push_back(size());
    const std::int64_t ranks = context.num_ranks;
    Microbatch result;
    const auto row = [](const auto& values, at::ScalarType type) {
      return at::tensor(values, type).unsqueeze(0);
    };
    result.tensors = {{"tokens", row(tokens_, at::kLong)},
                      {"labels", row(labels_, at::kLong)},
                      {"position_ids", row(position_ids_, at::kLong)},
                      {"loss_mask", row(loss_mask_, at::kFloat)}};
    result.sample_ordinals = at::tensor(ordinals_, at::kLong);
    // These ordinals count from the first sample of the step.
    result.packed = {
        .cu_seqlens = std::move(begins_), .num_samples = 0, .hybrid = std::move(context)};
    if (ranks == 1) return result;
    const SequencePlacement placement = placement_of(result, ranks);
    const at::Tensor own = positions_of(placement.runs_of[static_cast<std::size_t>(rank)]);
    const at::Tensor num_tokens = result.num_tokens();
    for (auto& [name, tensor] : result.tensors) tensor = at::index_select(tensor, 1, own);
    result.tensors["num_tokens"] = num_tokens;
    return result;
  }

 private:
  void begin_sequence(std::int64_t ordinal) {
    begins_.push_back(size());
    ordinals_.push_back(ordinal);
  }

  std::vector<std::int64_t> tokens_, labels_, position_ids_, begins_, ordinals_;
  std::vector<float> loss_mask_;
};

class HybridContextSource : public MicrobatchSource {
 public:
  HybridContextSource(std::shared_ptr<const Dataset> dataset, HybridContextOptions options)
      : options_(std::move(options)),
        consumed_(options_.first_sample),
        samples_(std::move(dataset), {.sampler = {.consumed_samples = options_.first_sample},
                                      .num_workers = options_.num_workers,
                                      .vocab_size = options_.vocab_size}) {}

  Microbatch next() override {
    if (step_.empty()) plan_step();
    Microbatch microbatch = std::move(step_.front());
    step_.pop_front();
    return microbatch;
  }

 private:
  void plan_step() {
    const std::int64_t count = options_.samples_of_step(consumed_);
    consumed_ += count;
    std::vector<Batch> samples;
    for (std::int64_t i = 0; i < count; ++i) samples.push_back(samples_.next());
    const std::vector<DocumentPart> documents = documents_of(samples);
    HybridContextRequest request{.lengths = {},
                                 .num_ranks = options_.num_ranks,
                                 .max_rows_per_rank = options_.max_rows_per_rank,
                                 .row_multiple = options_.row_multiple,
                                 .cost = options_.cost};
    for (const DocumentPart& document : documents) request.lengths.push_back(document.length);
    const HybridContextSchedule schedule = make_hybrid_context_schedule(request);
    const std::string problem = check_hybrid_context_schedule(schedule, request);
    MEGATRON_CHECK(problem.empty(), problem, " in the schedule of ", documents.size(),
                   " documents");
    const HybridContextSummary summary = summary_of(schedule, request);
    for (const ContextMicrobatch& own : schedule.ranks[static_cast<std::size_t>(options_.rank)])
      step_.push_back(microbatch(own, samples, documents, summary));
  }

  Microbatch microbatch(const ContextMicrobatch& own, const std::vector<Batch>& samples,
                        const std::vector<DocumentPart>& documents,
                        const HybridContextSummary& step) const {
    HybridContext context{.num_ranks = own.num_ranks, .step = step};
    Rows rows;
    for (const std::int64_t index : own.sequences) {
      const DocumentPart& document = documents[static_cast<std::size_t>(index)];
      context.parts.push_back(rows.size());
      rows.append(samples[document.sample], document);
      rows.append_padding(padded_length(document.length, own.num_ranks, options_.row_multiple) -
                          document.length);
    }
    if (own.sequences.empty()) {
      context.parts.push_back(0);
      rows.append_padding(padded_length(1, own.num_ranks, options_.row_multiple));
    }
    context.parts.push_back(rows.size());
    return rows.microbatch(options_.rank - own.first_rank, std::move(context));
  }

  HybridContextOptions options_;
  std::int64_t consumed_;
  BatchStream samples_;
  std::deque<Microbatch> step_;  ///< the rest of the current step
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_hybrid_context_source(std::shared_ptr<const Dataset> dataset,
                                                             const HybridContextOptions& options) {
  return make_prefetch_source(std::make_unique<HybridContextSource>(std::move(dataset), options),
                              {.device = options.device, .in_thread = options.num_workers > 0});
}

}  // namespace megatron
