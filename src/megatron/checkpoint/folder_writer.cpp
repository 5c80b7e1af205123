#include "megatron/checkpoint/folder_writer.h"

#include <optional>

#include "megatron/base/checksum.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/leftovers.h"
#include "megatron/checkpoint/pending_folder.h"

namespace megatron {
namespace {

constexpr const char* kCarriedFolder = "hugging_face";
constexpr std::uint64_t kBytesPerPiece = 1024;  ///< in a file's header and in the manifest

void write_carried(const fs::path& folder, const CarriedFiles& carried, Manifest& manifest, FileSystem& files) {
  if (carried.empty()) return;
  megatron::create_directories(folder / kCarriedFolder, files);
  for (const auto& [name, text] : carried) {
    write_file(folder / kCarriedFolder / name, text, files);
    manifest.files[std::string(kCarriedFolder) + "/" + name] = checksum(text);
  }
}

std::uint64_t needed_bytes(const CheckpointContent& content) {
  std::uint64_t bytes = num_bytes(content.weights) + num_bytes(content.optimizer);
  bytes += kBytesPerPiece * (content.weights.size() + content.optimizer.size());
  for (const auto& [name, text] : content.carried) bytes += text.size();
  return bytes;
}

void write_content(const fs::path& folder, CheckpointContent content, FileSystem& files) {
  Manifest& manifest = content.manifest;
  write_pieces(folder, {.prefix = "weights"}, std::move(content.weights), manifest, files);
  write_pieces(folder, {.prefix = "optimizer"}, std::move(content.optimizer), manifest, files);
  write_carried(folder, content.carried, manifest, files);
  write_file(folder / kManifestFile, manifest_text(manifest), files);
}

}  // namespace

std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name, const std::string& tracker_text,
                                       CheckpointContent content, const FolderLock* lock, FileSystem& files) try {
  megatron::create_directories(root, files);
  std::optional<FolderLock> own_lock;
  if (lock == nullptr) lock = &own_lock.emplace(root);
  remove_uncommitted(root, lock->is_enforced(), files);
  require_free_space(root, needed_bytes(content), files);
  PendingFolder pending(root / name, files);
  write_content(pending.path(), std::move(content), files);
  pending.commit();
  write_file_atomically(root / kTrackerFile, tracker_text, files);
  return root / name;
} catch (const fs::filesystem_error& error) {
  fail_file("read folder", error.path1(), error.code().value());
}

}  // namespace megatron
