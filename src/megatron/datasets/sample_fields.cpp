#include "megatron/datasets/sample_fields.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "megatron/base/error.h"

namespace megatron {

std::int64_t SampleField::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

SampleField position_field(std::string name, std::int64_t length, FieldValues type) {
  return {
      .name = std::move(name), .type = std::move(type), .shape = {length}, .per_position = true};
}

SampleField token_field(std::string name, std::int64_t length) {
  SampleField field = position_field(std::move(name), length);
  field.holds_tokens = true;
  return field;
}

SampleFields causal_fields(std::int64_t length) {
  return std::make_shared<const std::vector<SampleField>>(
      std::vector{token_field("tokens", length), token_field("labels", length),
                  position_field("position_ids", length),
                  position_field("loss_mask", length, std::vector<float>())});
}

FieldBuffers::FieldBuffers(SampleFields of) : fields(std::move(of)) {
  for (const SampleField& field : *fields) values.push_back(field.type);
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
