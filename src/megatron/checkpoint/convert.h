// `megatron convert`: weights from any source that --load takes into a Hugging Face directory or a release checkpoint of ours.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <optional>
#include <string>

namespace megatron {

struct ConvertRequest {
  std::filesystem::path load = {}, save = {};
  std::string format = {};                    ///< hf | megatron
  std::string hf_model_type = {};             ///< "": where the weights came from, else the first family that can hold them
  std::optional<c10::ScalarType> dtype = {};  ///< nothing: as stored
  std::optional<std::int64_t> step = {};
};

/// Returns the folder that was written.
std::filesystem::path convert_checkpoint(const ConvertRequest& request);

}  // namespace megatron
