// Opens GGUF files as HfDirectory does folders of safetensors, and writes them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/name_list.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/gguf/gguf_model.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

constexpr const char* kExtension = ".gguf";

/// Returns the files of the split model of which `file` is one, NAME-00001-of-00003.gguf; `file`
/// alone if its name is of another form.
std::vector<fs::path> parts_of(const fs::path& file) {
  constexpr int kEnding = 15;  // the size of -00001-of-00003
  const std::string stem = file.stem().string();
  const std::size_t begin = stem.size() - std::min<std::size_t>(stem.size(), kEnding);
  int number = 0, count = 0, size = 0;
  std::sscanf(stem.c_str() + begin, "-%5d-of-%5d%n", &number, &count, &size);
  if (size != kEnding || count < 1) return {file};
  std::vector<fs::path> parts;
  std::vector<std::string> missing;
  for (number = 1; number <= count; ++number) {
    const std::string name =
        stem.substr(0, begin) + format("-%05d-of-%05d", number, count) + kExtension;
    parts.push_back(file.parent_path() / name);
    if (!fs::exists(parts.back())) missing.push_back(name);
  }
  require_no_names(file.string() + ": files of the model are missing", missing,
                   "download or copy them into its folder");
  return parts;
}

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return parts_of(path);
  const std::vector<std::string> names = files_with_extension(path, kExtension);
  const std::vector<fs::path> parts = parts_of(path / names.front());
  if (names.size() == parts.size()) return parts;
  throw UserError({path.string() + ": the folder has several GGUF files", name_list(names),
                   "give one of the files"});
}

/// Adds the Hugging Face tensors that a tensor of a file holds.
void add_tensor(const GgufName& name, const GgufTensor& tensor, const MappedFile& file,
                const std::vector<std::string>& parts,
                std::map<std::string, HfDirectory::Entry>& tensors) {
  HfDirectory::Entry entry{.file = file.path(),
                           .tensor = {.name = tensor.name,
                                      .type = to_safetensors_dtype(number_type(tensor.type)),
                                      .shape = tensor.shape},
                           .form = name.form};
  entry.form.type = tensor.type;
  if (name.has_experts()) entry.tensor.shape.erase(entry.tensor.shape.begin());
  if (name.is_row) entry.tensor.shape.insert(entry.tensor.shape.begin(), 1);
  entry.tensor.end = tensor.bytes.begin;
  for (const std::string& part : parts) {
    entry.tensor.begin =
        std::exchange(entry.tensor.end, entry.tensor.end + tensor.bytes.size() / parts.size());
    entry.bytes = file.bytes().subspan(entry.tensor.begin, entry.tensor.num_bytes());
    tensors.emplace(part, entry);
  }
}

/// Returns the type of a tensor in a file whose matrices have the type `wanted`.
GgufType type_of(const std::string& name, const Shape& shape, const GgufType& wanted) {
  if (shape.size() < 2 || name.find("ffn_gate_inp") != name.npos) return kGgufF32;
  return wanted == kGgufQ80 && shape.back() % 32 != 0 ? kGgufF16 : wanted;
}

/// A tensor of the file and those of Hugging Face, by index, whose bytes follow each other in it.
struct Part {
  GgufForm form;
  std::vector<std::size_t> sources = {};
};

void pad_to(FileWriter& writer, std::uint64_t position) {
  writer.write(std::string(position - writer.position(), '\0'));
}

}  // namespace

bool is_gguf(const std::filesystem::path& path) {
  if (!fs::is_directory(path)) return path.extension() == kExtension && fs::is_regular_file(path);
  return !fs::is_regular_file(path / "config.json") &&
         !files_with_extension(path, kExtension).empty();
}

void HfDirectory::open_gguf() {
  GgufFile whole;
  std::map<std::string, std::pair<GgufTensor, std::size_t>> found;  // with the number of the file
  for (const fs::path& file : files_of(folder_)) {
    gguf_files_.emplace_back(file);
    GgufFile part = read_gguf(gguf_files_.back().bytes(), file.string());
    if (gguf_files_.size() == 1) whole.metadata = part.metadata;
    for (const GgufTensor& tensor : part.tensors)
      found.try_emplace(tensor.name, tensor, gguf_files_.size() - 1);
    whole.tensors.insert(whole.tensors.end(), part.tensors.begin(), part.tensors.end());
  }
  std::vector<float> factors;
  if (const auto node = found.extract(std::string(kGgufRotaryFactors))) {
    const auto& [tensor, file] = node.mapped();
    const auto* numbers = gguf_files_[file].data() + tensor.bytes.begin;
    for (std::size_t i = 0; tensor.type == kGgufF32 && i < tensor.bytes.size(); i += 4)
      std::memcpy(&factors.emplace_back(), numbers + i, sizeof(float));
  }
  const std::string source = gguf_files_.front().path().string();
  *gguf_config_ = config_of_gguf(whole, factors, source);
  config_ = parse_hf_config(*gguf_config_, source);  // which limits layers and experts
  family_ = find_hf_family(config_.model_type);
  gguf_metadata_ = whole.metadata;
  for (const GgufName& name : gguf_names(*gguf_config_)) {
    const auto place = found.find(name.theirs);
    if (place == found.end()) continue;
    const auto& [tensor, file] = place->second;
    const std::vector<std::string> parts = name.parts(*gguf_config_);
    const bool is_stack = tensor.shape.size() == 3 && tensor.shape.front() == std::ssize(parts);
    if (name.has_experts() && !is_stack) continue;
    add_tensor(name, tensor, gguf_files_[file], parts, tensors_);
    found.erase(place);
  }
  for (const auto& [name, place] : found)  // which the model does not use
    add_tensor({}, place.first, gguf_files_[place.second], {name}, tensors_);
}

void require_gguf_model(const TransformerConfig& model, const Json& config,
                        const std::vector<WeightMapping>& links) {
  std::set<std::string> names;
  for (const WeightMapping& link : links)
    for (const HfTensor& theirs : link.theirs) names.insert(theirs.name);
  std::vector<float> factors;
  GgufFile file;
  *file.metadata = gguf_metadata(config, factors);
  const std::string type = file.metadata->at("general.architecture").get<std::string>();
  for (const GgufName& name : gguf_names(config))
    for (const std::string& part : name.parts(config))
      if (names.erase(part) > 0)
        file.tensors.push_back(
            {.name = name.theirs, .shape = {config.at("vocab_size"), model.hidden_size}});
  require_no_names("llama.cpp's architecture '" + type + "' does not have tensors of the model",
                   std::vector(names.begin(), names.end()), "write --format hf");
  const auto differences =
      forward_differences(model, parse_hf_config(config_of_gguf(file, factors, type), type).model);
  if (differences.empty()) return;
  throw UserError({"llama.cpp's architecture '" + type + "' computes another model",
                   joined_text(differences, ", ",
                               [](const ArchitectureDifference& d) {
                                 return d.member + " = " + d.left + " (llama.cpp: " + d.right + ")";
                               }),
                   "write --format hf"});
}

std::vector<std::string> write_gguf(const GgufExport& model, const std::filesystem::path& folder) {
  std::vector<std::string> notes;
  std::vector<float> factors;
  Json metadata = gguf_metadata(model.config, factors);
  const bool is_q8_0 = model.type == kGgufQ80;
  metadata["general.type"] = "model";
  metadata["general.file_type"] = is_q8_0 ? 7U : model.type == kGgufBf16 ? 32U : model.type.id;
  metadata["general.quantization_version"] = 2U;
  add_gguf_tokenizer(folder, model.config.at("vocab_size").get<std::int64_t>(), metadata, notes);
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) places.emplace(model.tensors[i].name, i);
  std::vector<GgufTensor> tensors;
  std::vector<Part> parts;
  for (const GgufName& name : gguf_names(model.config)) {
    Part part{.form = name.form};
    for (const std::string& ours : name.parts(model.config))
      if (const auto node = places.extract(ours)) part.sources.push_back(node.mapped());
    if (part.sources.empty()) continue;
    Shape shape = model.tensors[part.sources.front()].shape;
    if (name.is_row) shape.erase(shape.begin());
    part.form.type = type_of(name.theirs, shape, model.type);
    if (name.has_experts()) shape.insert(shape.begin(), std::ssize(part.sources));
    tensors.push_back({.name = name.theirs, .type = part.form.type, .shape = shape});
    parts.push_back(std::move(part));
  }
  if (!factors.empty())
    tensors.push_back({.name = std::string(kGgufRotaryFactors), .shape = {std::ssize(factors)}});
  FileWriter writer(folder / "model.gguf");
  writer.write(gguf_header(metadata, tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pad_to(writer, tensors[i].bytes.begin);
    if (i == parts.size()) {
      writer.write_values(std::span<const float>(factors));
      continue;
    }
    for (const std::size_t source : parts[i].sources)
      writer.write(gguf_bytes(model.read(source), parts[i].form));
    MEGATRON_CHECK(writer.position() == tensors[i].bytes.end, "tensor ", tensors[i].name,
                   " has other bytes than its header says");
  }
  pad_to(writer, (writer.position() + 31) / 32 * 32);
  writer.close(/*sync=*/true);
  return notes;
}

}  // namespace megatron
