#include "megatron/nn/microbatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "megatron/base/error.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/rank.h"

namespace megatron {

const at::Tensor& Microbatch::at(const std::string& name) const {
  const auto found = tensors.find(name);
  MEGATRON_CHECK(found != tensors.end(), "the microbatch has no tensor named ", name);
  return found->second;
}

std::int64_t Microbatch::num_samples() const {
  if (packed) return packed->num_samples;
  return sample_ordinals.defined() ? sample_ordinals.numel() : first_field().size(0);
}

at::Tensor Microbatch::num_tokens() const {
  return has("num_tokens") ? at("num_tokens") : at("loss_mask").sum();
}

std::pair<double, double> Microbatch::computed_samples() const {
  if (!packed || packed->padded_length == 0) {
    const auto samples = static_cast<double>(num_samples());
    return {samples, samples};
  }
  std::pair<double, double> sum;
  for (std::int64_t i = 0; i < packed->num_sequences(); ++i) {
    const std::int64_t* const begin = &packed->cu_seqlens[static_cast<std::size_t>(i)];
    const double share =
        static_cast<double>(begin[1] - begin[0]) / static_cast<double>(packed->padded_length);
    sum.first += share;
    sum.second += share * share;
  }
  return sum;
}

namespace {

constexpr int kSampleBits = 40;  ///< of an ordinal; the higher ones number the packed sequences

}  // namespace

std::int64_t packed_ordinal(std::int64_t sample_ordinal, std::int64_t sequence) {
  return sample_ordinal + (sequence << kSampleBits);
}

std::int64_t sample_of_ordinal(std::int64_t ordinal) {
  return ordinal & ((std::int64_t{1} << kSampleBits) - 1);
}

const Axis& context_axis(const Microbatch& microbatch, const Rank& rank) {
  const HybridContext* hybrid = microbatch.hybrid();
  return rank.context_axis(hybrid != nullptr ? hybrid->num_ranks : rank.cp.size);
}

SequencePlacement placement_of(const Microbatch& microbatch, std::int64_t ranks) {
  const std::optional<PackedSequences>& packed = microbatch.packed;
  if (const HybridContext* hybrid = microbatch.hybrid())
    return zigzag_placement_of_parts(hybrid->parts, ranks, packed->cu_seqlens);
  SequencePlacement placement =
      zigzag_placement(microbatch.first_field().size(1) * ranks, ranks,
                       packed ? packed->cu_seqlens : std::vector<std::int64_t>());
  if (packed) placement.padded_length = packed->padded_length;
  return placement;
}

Microbatch context_slice(Microbatch microbatch, std::int64_t rank, std::int64_t ranks) {
  if (ranks == 1 || microbatch.hybrid() != nullptr || microbatch.has("num_tokens"))
    return microbatch;
  microbatch.tensors["num_tokens"] = microbatch.num_tokens();
  std::map<std::int64_t, at::Tensor> rows_of_length;
  for (const std::string& name : microbatch.per_position) {
    at::Tensor& tensor = microbatch.tensors.at(name);
    at::Tensor& rows = rows_of_length[tensor.size(1)];
    if (!rows.defined())
      rows = positions_of(
                 zigzag_placement(tensor.size(1), ranks).runs_of[static_cast<std::size_t>(rank)])
                 .to(tensor.device());
    tensor = at::index_select(tensor, 1, rows);
  }
  return microbatch;
}

at::Tensor document_ids_of(const std::vector<std::int64_t>& lengths, std::int64_t sequence_length) {
  return at::arange(sequence_length, at::kLong)
      .ge(at::tensor(lengths, at::kLong).unsqueeze(1))
      .to(at::kInt);
}

}  // namespace megatron
