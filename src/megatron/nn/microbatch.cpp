#include "megatron/nn/microbatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

#include "megatron/base/error.h"
#include "megatron/ops/sequence_placement.h"

namespace megatron {

const at::Tensor& Microbatch::at(const std::string& name) const {
  const auto found = tensors.find(name);
  MEGATRON_CHECK(found != tensors.end(), "the microbatch has no tensor named ", name);
  return found->second;
}

at::Tensor Microbatch::num_tokens() const {
  return has("num_tokens") ? at("num_tokens") : at("loss_mask").sum();
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

Microbatch context_slice(Microbatch microbatch, std::int64_t rank, std::int64_t ranks) {
  if (ranks == 1) return microbatch;
  const at::Tensor& tokens = microbatch.at("tokens");
  const at::Tensor rows =
      positions_of(zigzag_placement(tokens.size(1), ranks).runs_of[static_cast<std::size_t>(rank)])
          .to(tokens.device());
  microbatch.tensors["num_tokens"] = microbatch.num_tokens();
  for (const char* name : {"tokens", "labels", "loss_mask", "position_ids"}) {
    at::Tensor& tensor = microbatch.tensors.at(name);
    tensor = at::index_select(tensor, 1, rows);
  }
  return microbatch;
}

}  // namespace megatron
