#include "megatron/checkpoint/verify.h"

#include <ostream>
#include <set>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/manifest_reader.h"

namespace megatron {
namespace {

/// Runs `check` and keeps what it says.
template <class Check>
void collect(std::vector<std::string>& faults, Check check) {
  try {
    check();
  } catch (const UserError& error) {
    faults.push_back(error.parts().what + (error.parts().got.empty() ? "" : ": " + error.parts().got));
  }
}

void verify_pieces(ManifestReader& reader, std::vector<std::string>& faults) {
  std::set<std::string> bad_files;
  std::map<std::string, std::set<std::string>> keys;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    for (const Piece& piece : tensor.pieces) {
      if (bad_files.contains(piece.file)) continue;
      const std::size_t before = faults.size();
      collect(faults, [&] { reader.file(piece.file); });
      if (faults.size() > before) {
        bad_files.insert(piece.file);
        continue;
      }
      keys[piece.file].insert(piece.key);
      collect(faults, [&] { reader.piece_tensor(name, tensor, piece); });
    }
  }
  for (const auto& [file, known] : keys) {
    for (const StoredTensor& stored : reader.file(file).tensors()) {
      if (!known.contains(stored.name)) faults.push_back(reader.file(file).path().string() + ": tensor '" + stored.name + "' is not in the manifest");
    }
  }
}

void verify_carried(const fs::path& folder, const Manifest& manifest, std::vector<std::string>& faults) {
  for (const auto& [name, expected] : manifest.files) {
    collect(faults, [&] {
      if (checksum(read_file(folder / name)) != expected) throw UserError((folder / name).string() + ": checksum does not match");
    });
  }
}

}  // namespace

std::vector<std::string> verify_folder(const std::filesystem::path& folder) {
  std::vector<std::string> faults;
  collect(faults, [&] {
    ManifestReader reader(folder);
    verify_pieces(reader, faults);
    verify_carried(folder, reader.manifest(), faults);
  });
  return faults;
}

void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out) {
  if (!fs::is_directory(root)) throw UserError({root.string() + ": is not a folder", "", "check the path"});
  std::vector<fs::path> folders;
  if (all) {
    folders = all_checkpoint_folders(root);
  } else if (const auto latest = find_checkpoint_folder(root, std::nullopt)) {
    folders.push_back(*latest);
  }
  if (folders.empty()) throw UserError({root.string() + ": there is no checkpoint", "", "check the path"});
  std::string message;
  for (const fs::path& folder : folders) {
    const std::vector<std::string> faults = verify_folder(folder);
    out << folder.string() << ": " << (faults.empty() ? "whole" : "damaged") << "\n";
    for (const std::string& fault : faults) message += "\n  " + fault;
  }
  if (!message.empty()) throw UserError({"damaged checkpoint", message, "load another iteration with --ckpt-step"});
}

}  // namespace megatron
