#include "megatron/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/file_exchange.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/models/architecture.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

constexpr std::uint64_t kBytesPerPiece = 1024;  ///< in a file's header and in the manifest

/// Returns the file of an auxiliary file, relative to the checkpoint.
std::string auxiliary_path(const std::string& name) {
  return std::string(kAuxiliaryFolder) + "/" + name;
}

void write_auxiliary_files(const fs::path& folder, const AuxiliaryFiles& auxiliary_files,
                           FileSystem& files) {
  if (auxiliary_files.empty()) return;
  megatron::create_directories(folder / kAuxiliaryFolder, files);
  for (const auto& [name, text] : auxiliary_files)
    write_file(folder / auxiliary_path(name), text, files);
}

std::uint64_t needed_bytes(const CheckpointContent& content) {
  std::uint64_t bytes = num_bytes(content.weights) + num_bytes(content.optimizer);
  bytes += kBytesPerPiece * (content.weights.size() + content.optimizer.size());
  for (const auto& [name, text] : content.auxiliary_files) bytes += text.size();
  return bytes;
}

/// Returns the checkpoint that a run would resume from; nullopt where there is no whole one. If
/// that is `last`, which may be null, takes it from there and parses no manifest.
std::optional<SavedFolder> saved_before(const fs::path& root, SavedFolder* last) try {
  const std::optional<fs::path> folder = find_checkpoint_folder(root, std::nullopt);
  if (!folder) return std::nullopt;
  if (last != nullptr && last->path == *folder) return std::exchange(*last, {});
  return SavedFolder{.path = *folder, .manifest = read_manifest(*folder)};
} catch (const UserError&) {
  return std::nullopt;
}

}  // namespace

CheckpointWrite::CheckpointWrite(fs::path root, const std::string& name, CheckpointContent content,
                                 CheckpointWriteOptions options)
    : root_(std::move(root)),
      path_(root_ / name),
      content_(std::move(content)),
      options_(std::move(options)),
      steps_(options_.world, options_.device),
      has_one_folder_(options_.placement == nullptr ||
                      options_.placement->owners.num_folders() == 1) {
  const std::vector<std::string> bytes =
      steps_.run_on_all_ranks([&] { return std::to_string(needed_bytes(content_)); });
  folder_ = on_leaders([&] { return begin(bytes).string(); });
  if (has_one_folder_) steps_.run_on_all_ranks([&] { return require_shared(); });
}

CheckpointWrite::~CheckpointWrite() = default;

void CheckpointWrite::write() try {
  Manifest& manifest = content_.manifest;
  const std::int64_t rank = steps_.rank();
  std::vector<WriteItem> frozen;
  std::erase_if(content_.weights, [&](WriteItem& item) {
    const bool is_frozen = item.is_frozen;
    if (is_frozen) frozen.push_back(std::move(item));
    return is_frozen;
  });
  const std::optional<SavedFolder> before =
      frozen.empty() ? std::nullopt : saved_before(root_, options_.last);
  ShardFileOptions shards{.prefix = "frozen",
                          .rank = rank,
                          .before = before ? &*before : nullptr,
                          .is_given_up = &is_given_up_};
  write_shard_files(folder_, shards, std::move(frozen), manifest, options_.files);
  frozen_ = {.path = path_, .manifest = manifest};
  shards.before = nullptr;
  shards.prefix = "weights";
  write_shard_files(folder_, shards, std::move(content_.weights), manifest, options_.files);
  shards.prefix = "optimizer";
  write_shard_files(folder_, shards, std::move(content_.optimizer), manifest, options_.files);
} catch (...) {
  fault_ = std::current_exception();
}

fs::path CheckpointWrite::commit(const std::string& tracker_text) {
  const std::vector<std::string> parts = steps_.gather_from_all_ranks([&] { return part(); });
  if (options_.before_commit) options_.before_commit();
  if (!has_one_folder_) steps_.run_on_all_ranks([&] { return copy(); });
  steps_.run_on_rank_0([&] { return merge(parts); });
  if (!has_one_folder_) share_description();
  on_leaders([&] { return finish(tracker_text); });
  if (options_.last != nullptr) *options_.last = std::move(frozen_);
  return path_;
}

bool CheckpointWrite::is_leader() const {
  return has_one_folder_ ? steps_.rank() == 0 : options_.placement->owners.is_leader(steps_.rank());
}

/// Runs `step` on the leader of each folder and returns the result of this rank's leader.
std::string CheckpointWrite::on_leaders(const std::function<std::string()>& step) const {
  if (has_one_folder_) return steps_.run_on_rank_0(step);
  const std::vector<std::string> results =
      steps_.run_on_all_ranks([&] { return is_leader() ? step() : std::string(); });
  return results[static_cast<std::size_t>(options_.placement->owners.leader_of(steps_.rank()))];
}

/// Prepares the root and returns the pending folder that the ranks of this folder write to.
fs::path CheckpointWrite::begin(const std::vector<std::string>& bytes) {
  FileSystem& files = options_.files;
  megatron::create_directories(root_, files);
  const FolderLock* lock = options_.lock;
  if (lock == nullptr) lock = &own_lock_.emplace(root_);
  remove_stale_temporaries(root_, lock->is_enforced(), files);
  std::uint64_t needed = 0;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank)
    needed += std::stoull(bytes[rank]) * copies_here(static_cast<std::int64_t>(rank));
  require_free_space(root_, needed, files);
  return fs::absolute(pending_.emplace(path_, files).path());
}

/// Returns how often this folder holds the pieces of a rank: once or not at all.
std::uint64_t CheckpointWrite::copies_here(std::int64_t rank) const {
  if (has_one_folder_) return 1;
  const LocalPlacement& placement = *options_.placement;
  std::vector<std::int64_t> writers = ranks_with_copies(rank, placement);
  writers.push_back(rank);
  return static_cast<std::uint64_t>(std::ranges::count_if(writers, [&](std::int64_t writer) {
    return placement.owners.leader_of(writer) == placement.owners.leader_of(steps_.rank());
  }));
}

std::string CheckpointWrite::require_shared() const {
  if (steps_.rank() == 0 || fs::is_directory(folder_)) return {};
  throw UserError(
      {"--save " + root_.string() + ": host " + host_name() + " does not see rank 0's files",
       folder_.string() + " is missing", "save to a folder that all hosts share"});
}

/// Returns the manifest part that describes what this rank has written.
std::string CheckpointWrite::part() const {
  if (fault_) std::rethrow_exception(fault_);
  return steps_.rank() == 0 ? std::string() : manifest_part_text(content_.manifest);
}

/// Copies this rank's files to the other folders of its replication group.
std::string CheckpointWrite::copy() const {
  std::vector<std::string> names;
  for (const auto& [file, header] : content_.manifest.headers) names.push_back(file);
  replicate_files({.names = std::move(names), .folder = folder_}, *options_.placement,
                  options_.world, options_.files);
  return {};
}

/// Rank 0 merges the other ranks' parts into its manifest.
std::string CheckpointWrite::merge(const std::vector<std::string>& parts) {
  Manifest& manifest = content_.manifest;
  for (std::size_t rank = 1; rank < parts.size(); ++rank)
    merge_manifest_part(manifest, parts[rank], "manifest part of rank " + std::to_string(rank));
  if (has_one_folder_) require_files(manifest);
  const std::string fault = parts.size() > 1 ? tiling_error(manifest) : std::string();
  MEGATRON_CHECK(fault.empty(), "the ranks' pieces do not tile their tensors: ", fault);
  for (const auto& [name, text] : content_.auxiliary_files)
    manifest.files[auxiliary_path(name)] = checksum(text);
  manifest_text_ = manifest_text(manifest);
  return {};
}

void CheckpointWrite::require_files(const Manifest& manifest) const {
  for (const auto& [file, header] : manifest.headers) {
    if (!fs::exists(pending_->path() / file))
      throw UserError({"--save " + root_.string() + ": rank 0 does not see " + file +
                           ", which another rank wrote",
                       "", "save to a folder that all hosts share"});
  }
}

/// Gives the leaders of all folders what rank 0 knows: the manifest and the auxiliary files.
void CheckpointWrite::share_description() {
  std::vector<std::string> texts{manifest_text_};
  for (const auto& [name, text] : content_.auxiliary_files) {
    texts.push_back(name);
    texts.push_back(text);
  }
  texts = broadcast_strings({options_.world, options_.device}, texts);
  manifest_text_ = texts.front();
  content_.auxiliary_files.clear();
  for (std::size_t i = 1; i < texts.size(); i += 2)
    content_.auxiliary_files[texts[i]] = texts[i + 1];
}

std::string CheckpointWrite::finish(const std::string& tracker_text) {
  const fs::path folder = pending_->path();
  write_auxiliary_files(folder, content_.auxiliary_files, options_.files);
  write_file(folder / kManifestFile, manifest_text_, options_.files);
  pending_->commit();
  write_file_atomically(root_ / kTrackerFile, tracker_text, options_.files);
  return {};
}

std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const std::filesystem::path& root,
                                    const CheckpointWriteOptions& options) {
  CheckpointContent content;
  content.manifest.model = architecture_to_json(source.model);
  content.manifest.settings = tokenizer_to_json(source.tokenizer);
  content.manifest.family = source.family;
  content.manifest.model_type = source.model_type;
  content.auxiliary_files = source.auxiliary_files;
  std::int64_t index = 0;
  const auto add = [&](const WeightInfo& info, TensorKind kind) {
    if (index++ % options.world.size != options.world.rank) return;
    content.weights.push_back(
        {.name = info.name,
         .kind = kind,
         .type = to_safetensors_dtype(info.type),
         .global_shape = info.shape,
         .slice = whole_slice(info.shape),
         .tensor = [&reader, name = info.name] { return reader.read(name); }});
  };
  for (const WeightInfo& info : reader.weights()) add(info, TensorKind::weight);
  for (const WeightInfo& info : reader.states()) add(info, TensorKind::state);
  CheckpointWrite write(root, kReleaseFolder, std::move(content), options);
  write.write();
  return write.commit(kReleaseFolder);
}

}  // namespace megatron
