// Finds out what --load names and describes it as a CheckpointSource.
#include <algorithm>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/megatron_lm/deepspeed.h"
#include "megatron/checkpoint/megatron_lm/mp_rank.h"
#include "megatron/checkpoint/megatron_lm/nemo.h"
#include "megatron/checkpoint/megatron_lm/torch_dist.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/resolve.h"
#include "megatron/models/architecture.h"
#include "megatron/models/model_family.h"

namespace megatron {
namespace {

std::map<std::string, std::string> all_training_fields() {
  std::map<std::string, std::string> origins;
  for (const Field& field : training_members().set().fields) origins[field.name] = "checkpoint";
  return origins;
}

at::ScalarType first_weight_type(const Manifest& manifest, const std::string& place) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (tensor.kind == TensorKind::weight)
      return to_scalar_type(tensor.type, place + ": tensor '" + name + "'");
  }
  throw UserError({place + ": the checkpoint holds no weights", "", "load another checkpoint"});
}

std::string read_auxiliary_file(const fs::path& path, std::uint64_t expected) {
  std::string text = read_file(path);
  if (checksum(text) != expected) {
    throw UserError({path.string() + ": checksum does not match",
                     "the file changed since it was written",
                     "load another iteration with --ckpt-step"});
  }
  return text;
}

std::uint64_t identity_of(const HfDirectory& directory, std::string text) {
  for (const auto& [name, entry] : directory.tensors()) {
    text += '\n' + name + ' ' + std::to_string(static_cast<int>(entry.tensor.type)) + ' ' +
            std::to_string(entry.tensor.begin) + ' ' + std::to_string(entry.tensor.end);
  }
  return checksum(text);
}

bool is_foreign_folder(const fs::path& folder) {
  return is_torch_dist_folder(folder) || is_deepspeed_folder(folder) || is_mp_rank_folder(folder);
}

/// Returns where the tensors are of what others saved in `folder`: there, or in NeMo's weights/.
std::optional<fs::path> foreign_folder_in(const fs::path& folder) {
  if (is_foreign_folder(folder)) return folder.has_filename() ? folder : folder.parent_path();
  return is_nemo_folder(folder) ? std::optional(folder / "weights") : std::nullopt;
}

/// A manifest, and the checksum of what describes its tensors.
struct DescribedFolder {
  Manifest manifest;
  std::uint64_t identity = 0;
};

DescribedFolder described(const fs::path& folder) {
  if (!is_foreign_folder(folder)) {
    const std::string place = (folder / kManifestFile).string(), text = read_file(place);
    return {parse_manifest(text, place), checksum(text)};
  }
  DescribedFolder read{.manifest = is_torch_dist_folder(folder)  ? describe_torch_dist(folder)
                                   : is_deepspeed_folder(folder) ? describe_deepspeed(folder)
                                                                 : describe_mp_rank(folder)};
  std::string places;
  for (const auto& [name, tensor] : read.manifest.tensors)
    for (const Piece& piece : tensor.pieces)
      places += name + ' ' + piece.file + ' ' + std::to_string(*piece.offset) + '\n';
  read.identity = checksum(places);
  if (const std::string fault = tiling_error(read.manifest); !fault.empty())
    throw UserError({folder.string() + ": " + fault, "a part of the checkpoint is missing",
                     "copy the whole folder"});
  return read;
}

CheckpointSource megatron_source(const fs::path& folder) {
  const std::string place = (folder / kManifestFile).string();
  DescribedFolder read = described(folder);
  const auto opened = std::make_shared<const Manifest>(std::move(read.manifest));
  const Manifest& manifest = *opened;
  CheckpointSource source{.kind = CheckpointSource::Kind::megatron,
                          .identity = read.identity,
                          .folder = folder,
                          .manifest = opened,
                          .is_release = folder.filename() == kReleaseFolder,
                          .iteration = manifest.progress.iteration,
                          .model = architecture_from_json(*manifest.model, place + ": model"),
                          .given_training_fields = all_training_fields(),
                          .notes = {},
                          .weight_type = first_weight_type(manifest, place),
                          .family = manifest.family.empty()
                                        ? family_of_model_type(manifest.model_type).name
                                        : manifest.family,
                          .model_type = manifest.model_type,
                          .auxiliary_files = {},
                          .tokenizer = stored_tokenizer(manifest, folder)};
  for (const auto& [name, expected] : manifest.files)
    source.auxiliary_files[fs::path(name).filename().string()] =
        read_auxiliary_file(folder / name, expected);
  if (is_nemo_weights(folder)) {
    source.is_release = manifest.progress.iteration == 0;  // imported, not trained
    add_nemo_tokenizer(source);
  }
  resolve(source.model);
  return source;
}

CheckpointSource hugging_face_source(const fs::path& folder) {
  const HfDirectory directory(folder);
  const HfConfig& config = directory.config();
  std::vector<std::string> notes = config.notes;
  const AuxiliaryFiles files = directory.auxiliary_files(notes);
  CheckpointSource source{.kind = CheckpointSource::Kind::hugging_face,
                          .identity = identity_of(directory, files.at("config.json")),
                          .folder = folder,
                          .is_release = true,
                          .model = config.model,
                          .given_training_fields = config.given_training_fields,
                          .notes = notes,
                          .family = directory.family().network,
                          .model_type = config.model_type,
                          .auxiliary_files = files,
                          .tokenizer = stored_tokenizer(folder)};
  if (directory.tensors().empty())
    throw UserError(
        {folder.string() + ": the safetensors hold no tensors", "", "download the folder again"});
  const auto& [name, entry] = *directory.tensors().begin();
  source.weight_type = to_scalar_type(entry.tensor.type,
                                      entry.file.string() + ": tensor '" + entry.tensor.name + "'");
  resolve(source.model);
  return source;
}

/// Returns whether a run writes a file or folder of this name beside its checkpoints.
bool is_run_artifact(std::string_view name) {
  constexpr std::string_view kNames[] = {"metrics.jsonl", "progress.txt", "non_persistent",
                                         "report.html",   "profile",      "hang-reports",
                                         kWriteProbe};
  constexpr std::string_view kBeginnings[] = {"events.out.tfevents.", "batch_iter_", "metrics-"};
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(
             kBeginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

/// Returns whether `root` holds only what a run writes before its first checkpoint is committed.
bool has_no_checkpoint(const fs::path& root) {
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!is_temporary_name(name) && name != kLockFile && !is_run_artifact(name)) return false;
  }
  return true;
}

}  // namespace

std::optional<fs::path> find_foreign_folder(const fs::path& root,
                                            std::optional<std::int64_t> step) {
  if (auto folder = foreign_folder_in(root)) return folder;
  // A Hugging Face model in `root` goes before what DeepSpeed saved below it.
  if (!fs::exists(root / "model.safetensors") && !fs::exists(root / "model.safetensors.index.json"))
    if (auto folder = find_deepspeed_folder(root, step)) return folder;
  if (!fs::exists(root / kTrackerFile) || !all_checkpoint_folders(root).empty()) return {};
  const auto tracked = read_tracker(root);
  if (!tracked) return {};
  const std::optional<std::int64_t> iteration = step ? step : tracked->iteration;
  const fs::path folder = root / (iteration ? iteration_folder(*iteration) : kReleaseFolder);
  return is_foreign_folder(folder) ? std::optional(folder) : std::nullopt;
}

CheckpointSource open_checkpoint(const std::filesystem::path& folder, CheckpointSource::Kind kind) {
  return kind == CheckpointSource::Kind::megatron ? megatron_source(folder)
                                                  : hugging_face_source(folder);
}

std::optional<fs::path> find_foreign_checkpoint(const fs::path& root) {
  if (!fs::is_directory(root)) return std::nullopt;
  for (const fs::directory_entry& entry : fs::directory_iterator(root))
    if (auto folder = entry.is_directory() ? foreign_folder_in(entry.path()) : std::nullopt)
      return folder;
  return std::nullopt;
}

std::optional<CheckpointSource> find_checkpoint(const std::filesystem::path& root,
                                                std::optional<std::int64_t> step,
                                                const std::string& flag) {
  if (!fs::exists(root)) return std::nullopt;
  const bool is_hf = looks_like_hf_directory(root), is_folder = fs::is_directory(root);
  if (!is_hf) refuse_nemo_1(root, flag);
  if (!is_folder && !is_hf)
    throw UserError({flag + root.string() + " is a file, not a folder", "",
                     "give the folder of a checkpoint or of a Hugging Face model, or a GGUF file"});
  if (is_folder && has_no_checkpoint(root)) return std::nullopt;
  if (const auto folder = is_folder ? find_foreign_folder(root, step) : std::nullopt)
    return open_checkpoint(*folder, CheckpointSource::Kind::megatron);
  if (const auto folder = is_folder ? find_checkpoint_folder(root, step) : std::nullopt) {
    CheckpointSource source = open_checkpoint(*folder, CheckpointSource::Kind::megatron);
    if (step && source.iteration != *step)
      throw UserError(
          {"--ckpt-step " + std::to_string(*step),
           folder->string() + " is a checkpoint of iteration " + std::to_string(source.iteration),
           "leave --ckpt-step out, or name the folder that holds the iterations"});
    return source;
  }
  if (is_hf) return open_checkpoint(root, CheckpointSource::Kind::hugging_face);
  throw UserError({flag + root.string() + ": neither a checkpoint nor a Hugging Face directory",
                   std::string("no ") + kTrackerFile + ", no iter_ folder with a " + kManifestFile +
                       ", no config.json",
                   "give the folder that --save wrote, or one with config.json and safetensors, or "
                   "a GGUF file"});
}

CheckpointSource require_checkpoint(const std::filesystem::path& root) {
  if (auto source = find_checkpoint(root, std::nullopt, "")) return *std::move(source);
  throw UserError({root.string() + ": there is no checkpoint", "", "check the path"});
}

}  // namespace megatron
