// `megatron convert`: converts weights from any source that --load accepts to a Hugging Face
// directory, a GGUF file, a release, or a folder of Megatron-LM or of
// torch.distributed.checkpoint.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/tokenizer_flags.h"
#include "megatron/models/model_family.h"

namespace megatron {

struct ConvertRequest {
  std::filesystem::path load = {}, save = {};
  std::string format = {};         ///< hf | gguf | megatron | torch_dist | dcp
  std::string hf_model_type = {};  ///< "": the family of the source's weights, else the first
                                   ///< family that can hold the model
  std::optional<c10::ScalarType> dtype = {};  ///< nullopt keeps the stored type
  bool is_q8_0 = false;                       ///< matrices in Q8_0, in GGUF
  std::optional<std::int64_t> step = {};
  TokenizerFlags tokenizer = {};  ///< replace the source's tokenizer, or change its settings
  bool allow_non_finite = false;  ///< converts weights with NaN or infinite values, too
  const ModelFamilies* families = &library_families();
};

struct ConvertResult {
  std::filesystem::path folder;
  std::vector<std::string> notes;  ///< remarks to print on stderr
};

/// Writes request.save, which must be new or empty. Throws a UserError that names the weights with
/// values that are not finite, or not finite in `dtype`.
ConvertResult convert_checkpoint(const ConvertRequest& request);

}  // namespace megatron
