#include "megatron/checkpoint/hf_directory.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/models/hf/weight_map.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Throws the UserError of a folder without model.safetensors and without an index.
[[noreturn]] void refuse_without_weights(const fs::path& folder) {
  const std::vector<std::string> files = files_with_extension(folder, ".safetensors");
  throw UserError(
      {folder.string() + ": no " + kSingleFile + " and no " + kIndexFile + " beside config.json",
       files.empty() ? "" : "it holds " + name_list(files),
       files.empty() ? "save the model as safetensors (model.save_pretrained does)"
                     : std::string("download ") + kIndexFile +
                           R"(, or make it: {"metadata": {}, "weight_map": {"TENSOR": ")" +
                           files.front() + R"(", ...}} names the file of every tensor)"});
}

/// Throws a UserError that names the index and the shards it lists which do not exist.
void require_shards(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names)
    if (!fs::exists(folder / name)) missing.push_back(name);
  require_no_names((folder / kIndexFile).string() + " names " + std::to_string(names.size()) +
                       " files, of which these are missing",
                   missing, "download or copy them into " + folder.string());
}

/// Returns the index as a map from tensor name to file name.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string source = path.string();
  const Json json = read_json(path);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, value] : JsonCursor(json, source)["weight_map"].object().items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : std::string();
    if (file.empty() || file.find('/') != std::string::npos) {
      throw UserError(
          {source + ": weight_map of tensor '" + tensor + "' must name a file of the folder",
           value.dump(), "download the folder again"});
    }
    files[tensor] = file;
  }
  return files;
}

}  // namespace

std::vector<std::string> files_with_extension(const std::filesystem::path& folder,
                                              std::string_view extension) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == extension && entry.is_regular_file())
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

bool looks_like_hf_directory(const std::filesystem::path& path) {
  return fs::is_regular_file(path / "config.json") || is_gguf(path);
}

AuxiliaryFiles read_auxiliary_files(const std::filesystem::path& folder) {
  AuxiliaryFiles files;
  const auto read = [&](const char* name) {
    if (fs::is_regular_file(folder / name)) files[name] = read_file(folder / name);
  };
  for (const char* name : {"config.json", "generation_config.json"}) read(name);
  for (const char* name : tokenizer_file_names()) read(name);
  return files;
}

void set_class_names(const std::vector<std::string>& classes, AuxiliaryFiles& files) {
  std::string& text = files["config.json"];
  Json config = text.empty() ? Json::object() : parse_python_json(text, "config.json");
  if (!config.is_object()) return;
  config["id2label"] = config["label2id"] = Json::object();
  for (std::size_t i = 0; i < classes.size(); ++i) {
    config["id2label"][std::to_string(i)] = classes[i];
    config["label2id"][classes[i]] = i;
  }
  text = config.dump(2) + "\n";
}

AuxiliaryFiles HfDirectory::auxiliary_files(std::vector<std::string>& notes) const {
  AuxiliaryFiles files = read_auxiliary_files(folder_);
  if (gguf_files_.empty()) return files;
  files["config.json"] = gguf_config_->dump(2) + "\n";
  if (has_tokenizer_files(files)) return files;
  const std::string source = gguf_files_.front().path().string();
  for (auto& [name, text] : tokenizer_of_gguf(*gguf_metadata_, source, notes)) files[name] = text;
  return files;
}

HfDirectory::HfDirectory(const std::filesystem::path& folder) : folder_(folder) {
  if (is_gguf(folder)) {
    open_gguf();
    return;
  }
  const fs::path config = folder / "config.json";
  config_ = parse_hf_config(parse_python_json(read_file(config), config.string()), config.string());
  family_ = find_hf_family(config_.model_type);
  if (fs::exists(folder / kSingleFile)) {
    if (fs::exists(folder / kIndexFile) &&
        files_with_extension(folder, ".safetensors").size() > 1) {
      config_.notes.push_back((folder / kSingleFile).string() +
                              " is read, as transformers does, and not the files that " +
                              kIndexFile + " names; remove it if it does not belong there");
    }
    open(kSingleFile);
    match_tensors();
    return;
  }
  if (!fs::exists(folder / kIndexFile)) refuse_without_weights(folder);
  const auto index = read_index(folder / kIndexFile);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  require_shards(folder, names);
  for (const std::string& name : names) open(name);
  for (const auto& [tensor, file] : index) {
    const auto found = tensors_.find(full_hf_name(*family_, tensor));
    if (found == tensors_.end() || found->second.file.filename() != file) {
      throw UserError(
          {(folder / kIndexFile).string() + ": tensor '" + tensor + "' is not in " + file, "",
           "download the folder again"});
    }
  }
  match_tensors();
}

void HfDirectory::match_tensors() {
  TransformerConfig& model = config_.model;
  if (family_->network == "bert") {
    const std::string head[] = {"output_layer.bias"};
    model.bert_lm_head = tensors_.contains(map_weights(*family_, head, 0)[0].theirs[0].name);
    model.bert_binary_head = tensors_.contains("cls.seq_relationship.weight");
    if (model.bert_lm_head) model.num_classes = 0;  // config.json of a model before finetuning
  }
  const std::string& ignored = family_->ignored;
  const auto first_ignored = tensors_.lower_bound(ignored);
  if (!ignored.empty() && first_ignored != tensors_.end() &&
      first_ignored->first.starts_with(ignored))
    config_.notes.push_back(folder_.string() + ": tensors '" + ignored +
                            "…' are left out, as in transformers: the model is loaded without "
                            "multi-token prediction");
  const std::string layer = family_->prefix + "layers." + std::to_string(model.num_layers) + ".";
  const auto first = tensors_.lower_bound(layer);
  if (first != tensors_.end() && first->first.starts_with(layer)) return;
  if (std::exchange(model.mtp_num_layers, 0) == 0) return;
  config_.notes.push_back(folder_.string() +
                          " holds no weights of the layers of multi-token prediction that its "
                          "config.json names: the model is loaded without them");
}

void HfDirectory::open(const std::string& name) {
  files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
  const SafetensorsFile& file = *files_.back();
  for (const StoredTensor& tensor : file.tensors()) {
    const bool is_new =
        tensors_
            .emplace(full_hf_name(*family_, tensor.name),
                     Entry{.file = file.path(), .tensor = tensor, .bytes = file.bytes(tensor)})
            .second;
    if (!is_new)
      throw UserError(
          {file.path().string() + ": tensor '" + tensor.name + "' occurs twice in the folder", "",
           "remove one of them"});
  }
}

}  // namespace megatron
