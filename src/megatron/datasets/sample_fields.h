// The named fields of samples. A dataset declares them once; loader, packing and context
// parallelism loop over them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace megatron {

/// The values of a field, row-major.
using FieldValues = std::variant<std::vector<std::int64_t>, std::vector<std::int32_t>,
                                 std::vector<float>, std::vector<std::uint8_t>>;

struct SampleField {
  std::string name;
  FieldValues type = {};                 ///< an empty buffer of its values' type
  std::vector<std::int64_t> shape = {};  ///< of one sample; empty: one number
  bool per_position = false;             ///< shape[0] counts positions, which packing and cp divide
  bool holds_tokens = false;             ///< int64 ids, which must be below the model's vocabulary

  std::int64_t size() const;  ///< number of values of a sample
};

/// Returns a field with one value for each of `length` positions.
SampleField position_field(std::string name, std::int64_t length, FieldValues type = {});
/// Returns position_field() of tokens.
SampleField token_field(std::string name, std::int64_t length);

/// The fields of a dataset, which its samples and batches share.
using SampleFields = std::shared_ptr<const std::vector<SampleField>>;

/// Returns the fields of a causal language model, each [sequence_length]: tokens; labels, the token
/// that follows each token; position_ids, which restart after an end of document with
/// reset_position_ids; loss_mask, float32, 0 where the label is padding and, with eod_mask_loss,
/// after an end of document.
SampleFields causal_fields(std::int64_t sequence_length);

/// The values of all fields, in their order: one buffer for each.
struct FieldBuffers {
  SampleFields fields;
  std::vector<FieldValues> values;

  /// Makes empty buffers.
  explicit FieldBuffers(SampleFields of);
  template <class First, class... Others>
  FieldBuffers(SampleFields of, std::vector<First> first, std::vector<Others>... others)
      : fields(std::move(of)) {
    values.reserve(1 + sizeof...(others));
    values.emplace_back(std::move(first));
    (values.emplace_back(std::move(others)), ...);
  }

  /// Returns the values of a field, which must have this type. InternalError for an unknown name.
  template <class T = std::int64_t>
  const std::vector<T>& get(std::string_view name) const {
    return std::get<std::vector<T>>(values[index_of(name)]);
  }
  /// Returns the length of the first field with positions; 0 without any.
  std::int64_t sequence_length() const;

 private:
  std::size_t index_of(std::string_view name) const;
};

}  // namespace megatron
