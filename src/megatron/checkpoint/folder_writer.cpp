#include "megatron/checkpoint/folder_writer.h"

#include "megatron/base/checksum.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/pending_folder.h"

namespace megatron {
namespace {

constexpr const char* kCarriedFolder = "hugging_face";

void write_text(const fs::path& path, const std::string& text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close(/*sync=*/true);
}

void write_carried(const fs::path& folder, const CarriedFiles& carried, Manifest& manifest) {
  if (carried.empty()) return;
  megatron::create_directories(folder / kCarriedFolder);
  for (const auto& [name, text] : carried) {
    write_text(folder / kCarriedFolder / name, text);
    manifest.files[std::string(kCarriedFolder) + "/" + name] = checksum(text);
  }
}

std::uint64_t carried_bytes(const CarriedFiles& carried) {
  std::uint64_t bytes = 0;
  for (const auto& [name, text] : carried) bytes += text.size();
  return bytes;
}

}  // namespace

std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name, const std::string& tracker_text,
                                       CheckpointContent content) {
  megatron::create_directories(root);
  const FolderLock lock(root);
  remove_uncommitted(root);
  require_free_space(root, num_bytes(content.weights) + num_bytes(content.optimizer) + carried_bytes(content.carried));
  PendingFolder pending(root / name);
  Manifest& manifest = content.manifest;
  write_pieces(pending.path(), {.prefix = "weights"}, std::move(content.weights), manifest.tensors);
  write_pieces(pending.path(), {.prefix = "optimizer"}, std::move(content.optimizer), manifest.tensors);
  write_carried(pending.path(), content.carried, manifest);
  write_text(pending.path() / kManifestFile, manifest_text(manifest));
  pending.commit();
  write_file_atomically(root / kTrackerFile, tracker_text);
  return root / name;
}

}  // namespace megatron
