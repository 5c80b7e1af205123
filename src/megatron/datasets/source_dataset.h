// The interface of a dataset over one source, which a blend mixes with others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "megatron/base/json_text.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/split.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {

/// The part of a source that one dataset contains.
struct SourcePart {
  std::optional<std::string> path;          ///< prefix of the .bin/.idx pair, or the file of
                                            ///< conversations; nullopt for mock data
  std::int64_t begin = 0, end = 0;          ///< range of the source's sequences or conversations
  std::optional<std::int64_t> num_samples;  ///< lower bound, over as many epochs as needed;
                                            ///< nullopt: one epoch
  Split split = Split::train;
  std::filesystem::path index_path = {};  ///< .idx file of the pair, or its local copy; empty: the
                                          ///< file of this name beside `path`
};

/// Returns the local .idx file of a part that has a path.
inline std::filesystem::path index_path(const SourcePart& part) {
  if (!part.index_path.empty()) return part.index_path;
  return part.path.value_or("") + ".idx";
}
/// Returns the folder in which megatron-core caches sample orders of a class, beside the data.
inline std::filesystem::path cache_folder_beside(const SourcePart& part,
                                                 const std::string& class_name) {
  return index_path(part).replace_extension() / "cache" / (class_name + "_indices");
}

/// Identifies the samples of a part by the options that every dataset of a source has.
template <class Options>
SampleDescription sample_description(const std::string& class_name, const SourcePart& part,
                                     const Options& options) {
  return {.class_name = class_name,
          .path = part.path,
          .num_samples = part.num_samples,
          .split = part.split,
          .seed = options.seed,
          .sequence_length = options.sequence_length,
          .split_text = options.split_text,
          .split_matrix = options.split_matrix,
          .tokenizer = options.tokenizer};
}

class SourceDataset : public Dataset {
 public:
  /// `name` is the source's, for errors.
  SourceDataset(SourcePart part, std::string name, std::vector<SampleField> fields)
      : part_(std::move(part)),
        name_(std::move(name)),
        fields_(std::make_shared<const std::vector<SampleField>>(std::move(fields))) {}

  const SampleFields& fields() const override { return fields_; }
  std::string describe(std::int64_t index) const override;
  const SourcePart& part() const { return part_; }
  /// Returns what identifies the samples and their order, as megatron-core writes it to its cache.
  virtual JsonText identifiers() const = 0;
  /// Returns the number of samples of so many epochs, rounded down, of a part whose num_samples is
  /// nullopt.
  virtual std::int64_t samples_of_epochs(double epochs) const;
  /// Returns the file whose contents determine the number of samples.
  virtual std::filesystem::path index_file() const { return index_path(part_); }

 protected:
  const SourcePart part_;

 private:
  const std::string name_;
  const SampleFields fields_;
};

/// Returns `epochs` × `count` rounded down. A product that differs from an integer by rounding
/// alone counts as that integer.
std::int64_t whole_epochs(double epochs, std::int64_t count);

}  // namespace megatron
