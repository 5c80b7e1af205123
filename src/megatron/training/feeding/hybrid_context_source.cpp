// The microbatches of hybrid context parallelism (schedules/hybrid_context_schedule.h).
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/training/feeding/dataset_source.h"

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
      const auto mask = batch.get<float>("loss_mask").begin() + parts[i].begin;
      if (std::all_of(mask, mask + parts[i].length, [](float counts) { return counts == 0; }))
        continue;
      documents.push_back(
          {sample, parts[i].begin, parts[i].length,
           packed_ordinal(static_cast<std::int64_t>(sample), static_cast<std::int64_t>(i))});
    }
  }
  return documents;
}

/// The rows of a microbatch over all its ranks, built document by document. A sequence has one
/// value of a field without positions.
class Rows {
 public:
  explicit Rows(SampleFields fields) : buffers_(std::move(fields)) {}

  void append(const Batch& sample, const DocumentPart& document) {
    append_sequence(document.ordinal, document.length, &sample, document.begin);
  }

  /// Appends rows that count for nothing, as a sequence of their own. Its ordinal is that of the
  /// sequence before it, so that messages name no other sample.
  void append_padding(std::int64_t count) {
    if (count > 0) append_sequence(ordinals_.empty() ? 0 : ordinals_.back(), count, nullptr, 0);
  }

  std::int64_t size() const { return begins_.back(); }

  /// Returns what one of the ranks that share the rows holds.
  Microbatch microbatch(std::int64_t rank, HybridContext context) {
    const std::int64_t ranks = context.num_ranks;
    Microbatch result{.tensors = {}, .sample_ordinals = at::tensor(ordinals_, at::kLong)};
    result.per_position.clear();
    for (std::size_t i = 0; i < buffers_.values.size(); ++i) {
      const SampleField& field = (*buffers_.fields)[i];
      std::vector<std::int64_t> shape = field.shape;
      if (field.per_position) shape[0] = size();
      shape.insert(shape.begin(), field.per_position ? 1 : std::ssize(ordinals_));
      result.tensors[field.name] = tensor_of(buffers_.values[i], shape);
      if (field.per_position) result.per_position.push_back(field.name);
    }
    // These ordinals count from the first sample of the step.
    result.packed = {
        .cu_seqlens = std::move(begins_), .num_samples = 0, .hybrid = std::move(context)};
    if (ranks == 1) return result;
    const SequencePlacement placement = placement_of(result, ranks);
    const at::Tensor own = positions_of(placement.runs_of[static_cast<std::size_t>(rank)]);
    result.tensors["num_tokens"] = result.num_tokens();
    for (const std::string& name : result.per_position) {
      at::Tensor& tensor = result.tensors.at(name);
      tensor = at::index_select(tensor, 1, own);
    }
    return result;
  }

 private:
  /// Appends `length` rows of a sample from `begin` on; zeros without a sample.
  void append_sequence(std::int64_t ordinal, std::int64_t length, const Batch* sample,
                       std::int64_t begin) {
    ordinals_.push_back(ordinal);
    begins_.push_back(size() + length);
    for (std::size_t i = 0; i < buffers_.values.size(); ++i) {
      const SampleField& field = (*buffers_.fields)[i];
      const std::int64_t positions = field.per_position ? field.shape[0] : 1,
                         size = c10::multiply_integers(field.shape) / positions,
                         first = field.per_position ? begin * size : 0,
                         count = field.per_position ? length * size : size;
      std::visit(
          [&](auto& to) {
            if (sample == nullptr) return to.resize(to.size() + static_cast<std::size_t>(count));
            const auto& from = std::get<std::decay_t<decltype(to)>>(sample->values[i]);
            to.insert(to.end(), from.begin() + first, from.begin() + first + count);
          },
          buffers_.values[i]);
    }
  }

  FieldBuffers buffers_;
  std::vector<std::int64_t> begins_{0}, ordinals_;  ///< of the sequences; begins_ ends with size()
};

class HybridContextSource : public MicrobatchSource {
 public:
  HybridContextSource(const std::shared_ptr<const Dataset>& dataset,
                      const DatasetSourceOptions& options)
      : options_(*options.hybrid),
        consumed_(options.loader.sampler.consumed_samples),
        fields_(dataset->fields()),
        samples_(dataset, {.sampler = {.repeats = true, .consumed_samples = consumed_},
                           .num_workers = options.loader.num_workers,
                           .vocab_size = options.loader.vocab_size}) {}

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
    for (std::int64_t i = 0; i < count; ++i) samples.push_back(samples_.next().value());
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
    Rows rows(fields_);
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
  SampleFields fields_;
  DataLoader samples_;
  std::deque<Microbatch> step_;  ///< the rest of the current step
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_hybrid_context_source(
    const std::shared_ptr<const Dataset>& dataset, const DatasetSourceOptions& options) {
  return std::make_unique<HybridContextSource>(dataset, options);
}

}  // namespace megatron
