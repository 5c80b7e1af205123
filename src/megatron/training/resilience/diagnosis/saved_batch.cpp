#include "megatron/training/resilience/diagnosis/saved_batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

constexpr const char* kFormat = "megatron-batch";
constexpr const char* kOrdinals = "sample_ordinals";
constexpr const char* kPacking = "cu_seqlens";  ///< of packed sequences
constexpr const char* kLengths = "lengths";     ///< of padded ones

constexpr std::pair<at::ScalarType, SafetensorsDtype> kIntegers[] = {
    {at::kLong, SafetensorsDtype::I64},
    {at::kInt, SafetensorsDtype::I32},
    {at::kByte, SafetensorsDtype::U8},
    {at::kBool, SafetensorsDtype::BOOL}};

SafetensorsDtype stored_type(at::ScalarType type) {
  for (const auto& [scalar, stored] : kIntegers)
    if (scalar == type) return stored;
  return to_safetensors_dtype(type);
}

at::ScalarType scalar_type(SafetensorsDtype type, const std::string& place) {
  for (const auto& [scalar, stored] : kIntegers)
    if (stored == type) return scalar;
  return to_scalar_type(type, place);
}

Json description(const SavedBatch& batch) {
  return {{"iteration", batch.iteration},
          {"index", batch.index},
          {"num_microbatches", batch.num_microbatches},
          {"gradient_scale", batch.gradient_scale},
          {"seed", batch.seed},
          {"vocab_pad_multiple", batch.vocab_pad_multiple},
          {"family", batch.family},
          {"per_position", batch.microbatch.per_position},
          {"num_samples", batch.microbatch.num_samples()},
          {"padded_length", batch.microbatch.packed ? batch.microbatch.packed->padded_length : 0},
          {"model", architecture_to_json(batch.model)},
          {"precision", batch.precision},
          {"checkpoint_root", batch.checkpoint_root},
          {"checkpoint_iteration", batch.checkpoint_iteration},
          {"cause", batch.cause}};
}

void read_description(const JsonCursor& json, SavedBatch& batch) {
  batch.iteration = json["iteration"].integer();
  batch.index = json["index"].integer();
  batch.num_microbatches = json["num_microbatches"].integer();
  batch.gradient_scale = json["gradient_scale"].number();
  batch.seed = static_cast<std::uint64_t>(json["seed"].integer());
  batch.vocab_pad_multiple = json["vocab_pad_multiple"].integer();
  if (const auto family = json.find("family")) batch.family = family->text();
  if (const auto names = json.find("per_position")) {
    batch.microbatch.per_position.clear();
    for (const JsonCursor& name : names->elements())
      batch.microbatch.per_position.push_back(name.text());
  }
  batch.model = architecture_from_json(*json["model"], json["model"].place());
  batch.precision = json["precision"].text();
  batch.checkpoint_root = json["checkpoint_root"].text();
  batch.checkpoint_iteration = json["checkpoint_iteration"].integer();
  batch.cause = json["cause"].text();
}

at::Tensor read_tensor(const SafetensorsFile& file, const StoredTensor& stored) {
  const std::string place = file.path().string() + ": tensor '" + stored.name + "'";
  at::Tensor tensor = at::empty(stored.shape, scalar_type(stored.type, place));
  const auto bytes = file.bytes(stored);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

[[noreturn]] void broken(const std::string& source, const std::string& what) {
  throw UserError({source + ": " + what, "",
                   "give a batch_iter_….safetensors file that `megatron pretrain` wrote"});
}

std::vector<std::int64_t> read_numbers(const SafetensorsFile& file, const StoredTensor& stored) {
  const at::Tensor numbers = read_tensor(file, stored);
  if (numbers.dim() != 1 || numbers.scalar_type() != at::kLong)
    broken(file.path().string(), "tensor '" + stored.name + "' must be a row of integers");
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  return {first, first + numbers.numel()};
}

/// Checks that packed sequences cover one row of `tokens`, and fit what they were cut from.
void check_packing(const PackedSequences& packed, const at::Tensor& tokens,
                   const std::string& source) {
  const auto& begins = packed.cu_seqlens;
  if (tokens.size(0) != 1 || begins.size() < 2 || begins.front() != 0 ||
      begins.back() != tokens.size(1) ||
      std::ranges::adjacent_find(begins, std::greater_equal<>()) != begins.end())
    broken(source, "'cu_seqlens' must rise from 0 to the number of tokens, in one row");
  if (packed.padded_length == 0) return;
  bool fits = packed.num_samples > 0 && packed.num_samples <= packed.num_sequences();
  for (std::size_t i = 1; i < begins.size(); ++i)
    fits = fits && begins[i] - begins[i - 1] <= packed.padded_length;
  if (!fits) broken(source, "'padded_length' or 'num_samples' do not fit 'cu_seqlens'");
}

/// Checks ids that index a table of `size` rows.
void check_ids(const at::Tensor& ids, const char* name, std::int64_t size,
               const std::string& source) {
  if (ids.scalar_type() != at::kLong)
    broken(source, std::string("tensor '") + name + "' has the wrong type");
  const std::int64_t least = ids.min().item<std::int64_t>(), most = ids.max().item<std::int64_t>();
  if (least >= 0 && most < size) return;
  broken(source,
         format("tensor '%s' holds id %lld, outside the %lld of the model", name,
                static_cast<long long>(least < 0 ? least : most), static_cast<long long>(size)));
}

/// Checks what a forward pass requires: consistent shapes, and ids inside the vocabulary.
void check_tensors(const SavedBatch& batch, const std::string& source) {
  const Microbatch& microbatch = batch.microbatch;
  const std::vector<std::string>& names = microbatch.per_position;
  for (const std::string& name : names)
    if (!microbatch.has(name)) broken(source, "has no tensor '" + name + "'");
  const at::Tensor& first = microbatch.first_field();
  const std::int64_t rows = first.dim() > 1 ? first.size(0) : 0;
  for (const std::string& name : names) {
    const at::Tensor& tensor = microbatch.at(name);
    const bool is_shared = name == "position_ids" && tensor.dim() == 2 && tensor.size(0) == 1;
    if (tensor.dim() < 2 || tensor.numel() == 0 || (!is_shared && tensor.size(0) != rows) ||
        (names.front() == "tokens" && tensor.size(1) != first.size(1)))
      broken(source, "tensor '" + name + "' is not of the shape of '" + names.front() +
                         "', [samples, positions]");
  }
  const auto& packed = microbatch.packed;
  if (packed) check_packing(*packed, microbatch.first_field(), source);
  const std::int64_t sequences = packed ? packed->num_sequences() : rows;
  const at::Tensor& ordinals = microbatch.sample_ordinals;
  if (!ordinals.defined() || ordinals.scalar_type() != at::kLong ||
      ordinals.sizes() != at::IntArrayRef{sequences} ||
      (!microbatch.lengths.empty() && std::ssize(microbatch.lengths) != sequences))
    broken(source,
           "'sample_ordinals' and 'lengths' hold one integer per sample or packed sequence");
  const bool has_table = batch.model.position_embedding_type == PositionEmbedding::learned_absolute;
  const std::pair<const char*, std::int64_t> bounds[] = {
      {"tokens", batch.model.vocab_size},
      {"labels", batch.model.vocab_size},
      {"position_ids", has_table ? batch.model.max_position_embeddings - batch.model.position_offset
                                 : std::int64_t{1} << 40}};
  for (const auto& [name, bound] : bounds)
    if (microbatch.has(name)) check_ids(microbatch.at(name), name, bound, source);
  if (microbatch.has("loss_mask") && !microbatch.at("loss_mask").is_floating_point())
    broken(source, "tensor 'loss_mask' has the wrong type");
}

}  // namespace

std::filesystem::path saved_batch_path(const std::filesystem::path& folder,
                                       const SavedBatch& batch) {
  return folder / format("batch_iter_%07lld_microbatch_%lld.safetensors",
                         static_cast<long long>(batch.iteration),
                         static_cast<long long>(batch.index) + 1);
}

void save_batch(const std::filesystem::path& path, const SavedBatch& batch) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : batch.microbatch.tensors)
    tensors[name] = contiguous_cpu(tensor);
  tensors[kOrdinals] = contiguous_cpu(batch.microbatch.sample_ordinals);
  if (batch.microbatch.packed)
    tensors[kPacking] = at::tensor(batch.microbatch.packed->cu_seqlens, at::kLong);
  if (!batch.microbatch.lengths.empty())
    tensors[kLengths] = at::tensor(batch.microbatch.lengths, at::kLong);
  std::vector<TensorHeader> headers;
  for (const auto& [name, tensor] : tensors)
    headers.push_back(
        {.name = name, .type = stored_type(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  SafetensorsWriter writer(path, std::move(headers),
                           {{"format", kFormat}, {"description", description(batch).dump()}});
  for (const TensorHeader& head : writer.order()) writer.write(tensor_bytes(tensors.at(head.name)));
  writer.close();
}

SavedBatch load_batch(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const std::string source = path.string();
  const auto format = file.metadata().find("format"),
             description = file.metadata().find("description");
  if (format == file.metadata().end() || format->second != kFormat ||
      description == file.metadata().end())
    broken(source, "is not a saved batch");
  SavedBatch batch;
  const std::string place = source + ": description";
  const JsonCursor json(parse_json(description->second, place), place);
  read_description(json, batch);
  for (const StoredTensor& stored : file.tensors()) {
    if (stored.name == kOrdinals)
      batch.microbatch.sample_ordinals = read_tensor(file, stored);
    else if (stored.name == kPacking)
      batch.microbatch.packed = PackedSequences{read_numbers(file, stored)};
    else if (stored.name == kLengths)
      batch.microbatch.lengths = read_numbers(file, stored);
    else
      batch.microbatch.tensors[stored.name] = read_tensor(file, stored);
  }
  if (auto& packed = batch.microbatch.packed; packed && json.find("padded_length")) {
    packed->num_samples = json["num_samples"].integer();
    packed->padded_length = json["padded_length"].integer();
  }
  check_tensors(batch, source);
  return batch;
}

}  // namespace megatron
