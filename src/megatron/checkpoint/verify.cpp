// `megatron checkpoint verify`: checks that a checkpoint is whole.
#include <ostream>
#include <set>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

/// The errors found in one folder.
struct FolderErrors {
  std::vector<std::string> damage;  ///< bytes that are missing or were changed
  std::vector<std::string> values;  ///< intact tensors with values that are not finite
};

/// Runs `check` and appends the text of a UserError that it throws.
template <class Check>
void collect(std::vector<std::string>& errors, Check check) {
  try {
    check();
  } catch (const UserError& error) {
    errors.push_back(error.parts().problem());
  }
}

/// Checks that the values of an intact piece are finite.
void check_values(const std::string& place, const at::Tensor& values, FolderErrors& errors) {
  const std::string fault = non_finite_error(place, values);
  if (!fault.empty()) errors.values.push_back(fault);
}

void verify_pieces(ManifestReader& reader, FolderErrors& all) {
  std::vector<std::string>& errors = all.damage;
  std::set<std::string> bad_files;
  std::map<std::string, std::set<std::string>> keys;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    for (const Piece& piece : tensor.pieces) {
      if (bad_files.contains(piece.file)) continue;
      const std::size_t before = errors.size();
      collect(errors, [&] { reader.file(piece.file); });
      if (errors.size() > before) {
        bad_files.insert(piece.file);
        continue;
      }
      keys[piece.file].insert(piece.key);
      collect(errors, [&] { check_values(name, reader.piece_tensor(name, tensor, piece), all); });
    }
  }
  for (const auto& [file, known] : keys) {
    for (const StoredTensor& stored : reader.file(file).tensors()) {
      if (!known.contains(stored.name))
        errors.push_back(reader.file(file).path().string() + ": tensor '" + stored.name +
                         "' is not in the manifest");
    }
  }
}

void verify_auxiliary_files(const fs::path& folder, const Manifest& manifest,
                            std::vector<std::string>& errors) {
  for (const auto& [name, expected] : manifest.files) {
    collect(errors, [&] {
      if (checksum(read_file(folder / name)) != expected)
        throw UserError((folder / name).string() + ": checksum does not match");
    });
  }
}

FolderErrors find_errors(const std::filesystem::path& folder) {
  FolderErrors errors;
  collect(errors.damage, [&] {
    ManifestReader reader(folder);
    verify_pieces(reader, errors);
    verify_auxiliary_files(folder, reader.manifest(), errors.damage);
  });
  return errors;
}

FolderErrors find_hf_errors(const std::filesystem::path& folder) {
  FolderErrors errors;
  collect(errors.damage, [&] {
    HfReader reader(folder);
    for (const WeightInfo& info : reader.weights())
      check_values(info.name, reader.read(info.name), errors);
  });
  return errors;
}

}  // namespace

std::vector<std::string> verify_folder(const std::filesystem::path& folder) {
  FolderErrors errors = find_errors(folder);
  errors.damage.insert(errors.damage.end(), errors.values.begin(), errors.values.end());
  return errors.damage;
}

void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out) {
  if (!fs::is_directory(root))
    throw UserError({root.string() + ": is not a folder", "", "check the path"});
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
    const FolderErrors errors = is_hf ? find_hf_errors(folder) : find_errors(folder);
    const std::string whole = is_hf ? "complete (a Hugging Face folder has no checksums)" : "whole";
    const bool is_whole = errors.damage.empty();
    out << folder.string() << ": " << (is_whole ? whole : "damaged")
        << (errors.values.empty() ? ""
            : is_whole            ? ", but not finite"
                                  : ", and not finite")
        << "\n";
    for (const std::string& fault : errors.damage) damage += "\n  " + fault;
    if (!errors.values.empty())
      values += "\n  " + folder.string() + ": " + std::to_string(errors.values.size()) +
                name_lines(errors.values);
  }
  const std::string fix = is_hf
                              ? "download the folder again"
                              : "copy the folder again, or load another iteration with --ckpt-step";
  if (!damage.empty())
    throw UserError({"damaged checkpoint",
                     damage + (values.empty() ? "" : "\n  tensors that are not finite" + values),
                     fix});
  if (!values.empty())
    throw UserError(
        {"tensors that are not finite", values,
         is_hf ? fix : "load an iteration from before the run diverged, with --ckpt-step"});
}

}  // namespace megatron
