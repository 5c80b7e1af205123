// `megatron convert`: weights from any source that --load takes into a Hugging Face directory or a
// release checkpoint of ours.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/settings.h"

namespace megatron {

struct ConvertRequest {
  std::filesystem::path load = {}, save = {};
  std::string format = {};  ///< hf | megatron
  std::string hf_model_type =
      {};  ///< "": where the weights came from, else the first family that can hold them
  std::optional<c10::ScalarType> dtype = {};  ///< nothing: as stored
  std::optional<std::int64_t> step = {};
  TokenizerConfig tokenizer = {};  ///< written instead of the source's when it names one
  bool allow_non_finite = false;   ///< converts weights that are not finite all the same
};

struct ConvertResult {
  std::filesystem::path folder;
  std::vector<std::string> notes;  ///< remarks for stderr
};

/// Writes request.save, which must be new or empty. UserError naming the weights that are not
/// finite, or would not be in `dtype`.
ConvertResult convert_checkpoint(const ConvertRequest& request);

}  // namespace megatron
