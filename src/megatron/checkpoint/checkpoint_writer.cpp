#include "megatron/checkpoint/checkpoint_writer.h"

#include <optional>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {
namespace {

constexpr const char* kAuxiliaryFolder = "hugging_face";
constexpr std::uint64_t kBytesPerPiece = 1024;  ///< in a file's header and in the manifest

void write_auxiliary_files(const fs::path& folder, const AuxiliaryFiles& auxiliary_files,
                           Manifest& manifest, FileSystem& files) {
  if (auxiliary_files.empty()) return;
  megatron::create_directories(folder / kAuxiliaryFolder, files);
  for (const auto& [name, text] : auxiliary_files) {
    write_file(folder / kAuxiliaryFolder / name, text, files);
    manifest.files[std::string(kAuxiliaryFolder) + "/" + name] = checksum(text);
  }
}

std::uint64_t needed_bytes(const CheckpointContent& content) {
  std::uint64_t bytes = num_bytes(content.weights) + num_bytes(content.optimizer);
  bytes += kBytesPerPiece * (content.weights.size() + content.optimizer.size());
  for (const auto& [name, text] : content.auxiliary_files) bytes += text.size();
  return bytes;
}

/// Writes one checkpoint from all ranks.
class CollectiveWrite {
 public:
  CollectiveWrite(const fs::path& root, CheckpointContent content,
                  const CheckpointWriteOptions& options)
      : root_(root),
        content_(std::move(content)),
        options_(options),
        steps_(options.world, options.device) {}

  void run(const std::string& name, const std::string& tracker_text) {
    const std::vector<std::string> bytes =
        steps_.run_on_all_ranks([&] { return std::to_string(needed_bytes(content_)); });
    const fs::path folder = steps_.run_on_rank_0([&] { return begin(name, bytes).string(); });
    steps_.run_on_all_ranks([&] { return require_shared(folder); });
    const std::vector<std::string> parts = steps_.run_on_all_ranks([&] { return write(folder); });
    if (options_.before_commit) options_.before_commit();
    steps_.run_on_rank_0([&] { return finish(parts, tracker_text); });
  }

 private:
  /// Prepares the root and returns the pending folder that all ranks write to. Rank 0 calls it.
  fs::path begin(const std::string& name, const std::vector<std::string>& bytes) {
    FileSystem& files = options_.files;
    megatron::create_directories(root_, files);
    const FolderLock* lock = options_.lock;
    if (lock == nullptr) lock = &own_lock_.emplace(root_);
    remove_stale_temporaries(root_, lock->is_enforced(), files);
    std::uint64_t needed = 0;
    for (const std::string& text : bytes) needed += std::stoull(text);
    require_free_space(root_, needed, files);
    return fs::absolute(pending_.emplace(root_ / name, files).path());
  }

  std::string require_shared(const fs::path& folder) const {
    if (steps_.rank() == 0 || fs::is_directory(folder)) return {};
    throw UserError(
        {"--save " + root_.string() + ": host " + host_name() + " does not see rank 0's files",
         folder.string() + " is missing", "save to a folder that all hosts share"});
  }

  /// Writes this rank's pieces and returns the manifest part that describes them.
  std::string write(const fs::path& folder) {
    Manifest& manifest = content_.manifest;
    const std::int64_t rank = steps_.rank();
    write_shard_files(folder, {.prefix = "weights", .rank = rank}, std::move(content_.weights),
                      manifest, options_.files);
    write_shard_files(folder, {.prefix = "optimizer", .rank = rank}, std::move(content_.optimizer),
                      manifest, options_.files);
    return rank == 0 ? std::string() : manifest_part_text(manifest);
  }

  std::string finish(const std::vector<std::string>& parts, const std::string& tracker_text) {
    Manifest& manifest = content_.manifest;
    const fs::path folder = pending_->path();
    for (std::size_t rank = 1; rank < parts.size(); ++rank)
      merge_manifest_part(manifest, parts[rank], "manifest part of rank " + std::to_string(rank));
    for (const auto& [file, header] : manifest.headers) {
      if (!fs::exists(folder / file))
        throw UserError({"--save " + root_.string() + ": rank 0 does not see " + file +
                             ", which another rank wrote",
                         "", "save to a folder that all hosts share"});
    }
    const std::string fault = parts.size() > 1 ? tiling_error(manifest) : std::string();
    MEGATRON_CHECK(fault.empty(), "the ranks' pieces do not tile their tensors: ", fault);
    write_auxiliary_files(folder, content_.auxiliary_files, manifest, options_.files);
    write_file(folder / kManifestFile, manifest_text(manifest), options_.files);
    pending_->commit();
    write_file_atomically(root_ / kTrackerFile, tracker_text, options_.files);
    return {};
  }

  const fs::path& root_;
  CheckpointContent content_;
  const CheckpointWriteOptions& options_;
  const CollectiveSteps steps_;
  std::optional<FolderLock> own_lock_;    ///< set on rank 0 when the caller gave no lock
  std::optional<PendingFolder> pending_;  ///< set on rank 0
};

}  // namespace

std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name,
                                       const std::string& tracker_text, CheckpointContent content,
                                       const CheckpointWriteOptions& options) try {
  CollectiveWrite(root, std::move(content), options).run(name, tracker_text);
  return root / name;
} catch (const fs::filesystem_error& error) {
  throw_file_error("read folder", error.path1(), error.code().value());
}

}  // namespace megatron
