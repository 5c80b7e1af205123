// GGUF files as Hugging Face directories of the same model, in both directions: config.json, the
// names of tensors, their numbers and the tokenizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/formats/gguf.h"

namespace megatron {

struct TransformerConfig;
struct WeightMapping;

/// How a file stores a tensor of the family: with the rows of queries and keys in the order of
/// llama.cpp's rotary embedding, with norms around one, in blocks of 8 bits.
struct GgufForm {
  GgufType type = {};
  /// The heads in whose rows the channels that rotate together are neighbours, and not in the
  /// halves of the head. 0: the rows are as they are.
  std::int64_t rotary_heads = 0;
  double added = 0;  ///< to each number
};

/// Returns the type of numbers read from a file: float32 for Q8_0.
at::ScalarType number_type(const GgufType& type);

/// Returns the Hugging Face tensor of what a file stores: numbers, or [..., bytes] for Q8_0. A
/// matrix in Q8_0 stays in bytes, for dequantized_q8_0() of some of its rows.
at::Tensor restored_rows(at::Tensor stored, const GgufForm& form);

/// Returns the numbers in float32, [..., columns]. `packed` [..., columns / 32 * 34] is uint8.
at::Tensor dequantized_q8_0(const at::Tensor& packed);

/// Returns the bytes that a file has for a Hugging Face tensor. Blocks of Q8_0 are rounded as
/// llama.cpp's reference rounds them.
std::string gguf_bytes(const at::Tensor& theirs, const GgufForm& form);

/// Returns whether `path` is a GGUF file, or a folder with such files and without config.json.
bool is_gguf(const std::filesystem::path& path);

/// Returns the config.json of a file's model. `rotary_factors` are the numbers of its tensor
/// kGgufRotaryFactors, by which frequencies are divided; none without it. UserErrors name `source`
/// and the key, also for an unknown architecture.
Json config_of_gguf(const GgufFile& file, const std::vector<float>& rotary_factors,
                    const std::string& source);
inline constexpr std::string_view kGgufRotaryFactors = "rope_freqs.weight";

/// Returns the metadata of the model with this config.json, and its rotary factors. Throws a
/// UserError for a model_type that llama.cpp does not have.
Json gguf_metadata(const Json& config, std::vector<float>& rotary_factors);

/// A tensor of the Hugging Face family and how a file has it.
struct GgufName {
  std::string ours = {};  ///< {e} stands for each expert: the file's tensor holds those of all
  std::string theirs = {};
  GgufForm form = {};   ///< without type
  bool is_row = false;  ///< the file has a vector and the family a matrix of one row

  bool has_experts() const { return ours.find("{e}") != ours.npos; }
  /// Returns the names of the Hugging Face tensors that the file's holds, of the experts that
  /// config.json has.
  std::vector<std::string> parts(const Json& config) const;
};
/// Returns the tensors that a model with this config.json may have, layer by layer.
std::vector<GgufName> gguf_names(const Json& config);

/// Returns tokenizer.json or tokenizer.model, with tokenizer_config.json: byte-level BPE and
/// SentencePiece's BPE. A tokenizer that is not read becomes a note. UserErrors name `source` and
/// the key.
AuxiliaryFiles tokenizer_of_gguf(const Json& metadata, const std::string& source,
                                 std::vector<std::string>& notes);

/// Adds the tokenizer whose files lie in `folder`. One that cannot be written becomes a note.
void add_gguf_tokenizer(const std::filesystem::path& folder, std::int64_t vocab_size,
                        Json& metadata, std::vector<std::string>& notes);

/// Throws a UserError unless llama.cpp computes what `model` does from a file of the family of
/// `config`, its config.json, with the tensors of `links`.
void require_gguf_model(const TransformerConfig& model, const Json& config,
                        const std::vector<WeightMapping>& links);

struct GgufExport {
  const Json& config;
  GgufType type = kGgufF32;                ///< of matrices; vectors and routers are F32
  std::vector<TensorHeader> tensors = {};  ///< of Hugging Face
  /// Returns tensor i. It is called in the order of i as far as the file's allows.
  std::function<at::Tensor(std::size_t)> read = {};
};

/// Writes `folder`/model.gguf, with the tokenizer whose files lie in the folder. Returns remarks.
std::vector<std::string> write_gguf(const GgufExport& model, const std::filesystem::path& folder);

}  // namespace megatron
