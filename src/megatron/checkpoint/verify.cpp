#include "megatron/checkpoint/verify.h"

#include <ostream>
#include <set>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/non_finite.h"

namespace megatron {
namespace {

/// What is wrong with one folder.
struct FolderFaults {
  std::vector<std::string> damage;  ///< bytes that are missing or not those that were written
  std::vector<std::string>
      values;  ///< tensors whose bytes are right and whose numbers are not finite
};

/// Runs `check` and keeps what it says.
template <class Check>
void collect(std::vector<std::string>& faults, Check check) {
  try {
    check();
  } catch (const UserError& error) {
    faults.push_back(error.parts().what + (error.parts().got.empty() ? "" : ": " + error.parts().got));
  }
}

/// The values of a piece whose bytes are as they were written.
void check_values(const std::string& place, const at::Tensor& values, FolderFaults& faults) {
  const std::string fault = non_finite_fault(place, values);
  if (!fault.empty()) faults.values.push_back(fault);
}

void verify_pieces(ManifestReader& reader, FolderFaults& all) {
  std::vector<std::string>& faults = all.damage;
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
      collect(faults, [&] { check_values(name, reader.piece_tensor(name, tensor, piece), all); });
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

FolderFaults find_faults(const std::filesystem::path& folder) {
  FolderFaults faults;
  collect(faults.damage, [&] {
    ManifestReader reader(folder);
    verify_pieces(reader, faults);
    verify_carried(folder, reader.manifest(), faults.damage);
  });
  return faults;
}

FolderFaults find_hf_faults(const std::filesystem::path& folder) {
  FolderFaults faults;
  collect(faults.damage, [&] {
    HfReader reader(folder);
    for (const WeightInfo& info : reader.weights())
      check_values(info.name, reader.read(info.name), faults);
  });
  return faults;
}

}  // namespace

std::vector<std::string> verify_folder(const std::filesystem::path& folder) {
  FolderFaults faults = find_faults(folder);
  faults.damage.insert(faults.damage.end(), faults.values.begin(), faults.values.end());
  return faults.damage;
}

void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out) {
  if (!fs::is_directory(root)) throw UserError({root.string() + ": is not a folder", "", "check the path"});
  std::vector<fs::path> folders;
  if (all) {
    folders = all_checkpoint_folders(root);
  } else if (const auto latest = find_checkpoint_folder(root, std::nullopt)) {
    folders.push_back(*latest);
  }
  const bool is_hf = folders.empty() && looks_like_hf_directory(root);
  if (is_hf) folders.push_back(root);
  if (folders.empty())
    throw UserError({root.string() + ": there is no checkpoint", "",
                     "give the folder that --save wrote, or one with config.json and safetensors"});
  std::string damage, values;
  for (const fs::path& folder : folders) {
    const FolderFaults faults = is_hf ? find_hf_faults(folder) : find_faults(folder);
    const std::string whole = is_hf ? "complete (a Hugging Face folder has no checksums)" : "whole";
    const bool is_whole = faults.damage.empty();
    out << folder.string() << ": " << (is_whole ? whole : "damaged")
        << (faults.values.empty() ? ""
            : is_whole            ? ", but not finite"
                                  : ", and not finite")
        << "\n";
    for (const std::string& fault : faults.damage) damage += "\n  " + fault;
    if (!faults.values.empty())
      values += "\n  " + folder.string() + ": " + std::to_string(faults.values.size()) +
                name_lines(faults.values);
  }
  const std::string fix =
      is_hf ? "download the folder again"
            : "copy the folder again, or load another iteration with --ckpt-step";
  if (!damage.empty())
    throw UserError({"damaged checkpoint",
                     damage + (values.empty() ? "" : "\n  tensors that are not finite" + values),
                     fix});
  if (!values.empty())
    throw UserError({"tensors that are not finite", values,
                     is_hf ? fix : "load an iteration from before the run diverged, with --ckpt-step"});
}

}  // namespace megatron
