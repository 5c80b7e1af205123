// What --load names: a checkpoint of ours or a Hugging Face directory, found before any weight is
// read.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {

/// Describes what --load names, before any weight is read.
struct CheckpointSource {
  enum class Kind { megatron, hugging_face };
  Kind kind = Kind::megatron;
  /// Checksum of what describes the tensors: the manifest, whose pieces have checksums of their
  /// own, or config.json with the names, types and places of a Hugging Face directory's tensors.
  std::uint64_t identity = 0;
  std::filesystem::path folder = {};  ///< native iter_%07d or release, or a Hugging Face directory
  /// Parsed once, when the checkpoint is found; all that load from it share it. Null for a Hugging
  /// Face directory.
  std::shared_ptr<const Manifest> manifest = {};
  bool is_release =
      false;  ///< weights only: training starts at iteration 0 without optimizer state
  std::int64_t iteration = 0;
  /// Its shards lie in folders of this name on several hosts: fetch_local_shards() brings those
  /// that a rank needs.
  bool is_local = false;
  /// The run finetunes an encoder: weights of its heads that are not stored, or have another shape,
  /// are drawn, and those of heads that it lacks are not read.
  bool replaces_heads = false;
  TransformerConfig model = {};  ///< resolved architecture from the manifest or config.json
  /// Training members (dropout, init std) that the source sets, and from where; see
  /// merge_architecture().
  std::map<std::string, std::string> given_training_fields = {};
  std::vector<std::string> notes = {};  ///< remarks to print on stderr
  at::ScalarType weight_type = at::kFloat;
  std::string family = "gpt";           ///< model family (ModelFamily::name)
  std::string model_type = {};          ///< Hugging Face model_type of the weights; "" when unknown
  AuxiliaryFiles auxiliary_files = {};  ///< config.json, tokenizer.json, … for later exports
  /// The tokenizer that the weights were trained with; unset when none is stored.
  TokenizerConfig tokenizer = {};
};

/// Finds what `root` holds: a native checkpoint (at `step` or the latest), one of its iter_
/// folders, or a Hugging Face directory. Returns nullopt when it is missing, empty or holds only
/// uncommitted files; throws a UserError for any other folder, which names the flag that gave it.
std::optional<CheckpointSource> find_checkpoint(const std::filesystem::path& root,
                                                std::optional<std::int64_t> step = std::nullopt,
                                                const std::string& flag = "--load ");

/// Returns the folder that Megatron-LM or DeepSpeed wrote: `root`, or what its tracker or `step`
/// names there.
std::optional<std::filesystem::path> find_foreign_folder(const std::filesystem::path& root,
                                                         std::optional<std::int64_t> step);

/// Like find_checkpoint(), but throws a UserError when there is none.
CheckpointSource require_checkpoint(const std::filesystem::path& root);

/// Returns a checkpoint below `root` that one of them saved, which a save could replace; nullopt if
/// there is none.
std::optional<std::filesystem::path> find_foreign_checkpoint(const std::filesystem::path& root);

/// Opens the source that find_checkpoint() found at `folder`, without a search. Ranks call it that
/// follow the rank which searched.
CheckpointSource open_checkpoint(const std::filesystem::path& folder, CheckpointSource::Kind kind);

}  // namespace megatron
