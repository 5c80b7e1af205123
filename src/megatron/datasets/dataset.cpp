#include "megatron/datasets/dataset.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

std::vector<SampleField> causal_fields(std::int64_t length) {
  return {{.name = "tokens", .shape = {length}, .holds_tokens = true},
          {.name = "labels", .shape = {length}, .holds_tokens = true},
          {.name = "position_ids", .shape = {length}},
          {.name = "loss_mask", .type = std::vector<float>(), .shape = {length}}};
}

std::size_t FieldBuffers::index_of(std::string_view name) const {
  const auto found = std::ranges::find(*fields, name, &SampleField::name);
  MEGATRON_CHECK(found != fields->end(), "samples have no field named ", name);
  return static_cast<std::size_t>(found - fields->begin());
}

std::int64_t FieldBuffers::sequence_length() const {
  const auto found = std::ranges::find(*fields, true, &SampleField::per_position);
  return found == fields->end() ? 0 : found->shape[0];
}

}  // namespace megatron
