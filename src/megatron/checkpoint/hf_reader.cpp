#include "megatron/checkpoint/hf_reader.h"

#include <algorithm>

#include "megatron/base/division.h"
#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/mxfp4.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

TransformerConfig resolved(TransformerConfig model) {
  resolve(model);
  return model;
}

std::string place_of(const HfDirectory::Entry& entry) {
  return entry.file.string() + ": tensor '" + entry.tensor.name + "'";
}

/// Returns the rows of bytes of one of the slices of a weight in blocks, of which only these are
/// unpacked.
at::Tensor packed_rows(const at::Tensor& packed, const TensorPart& part, const TensorSlice& slice) {
  Shape offset = slice.local_offset, shape = slice.shape;
  offset.back() = 0;
  shape.back() = packed.size(-1);
  return part.region(packed, offset, shape);
}

/// Returns a part of one of the slices of a weight in MXFP4.
at::Tensor unpacked(const HfDirectory::Entry& blocks, const HfDirectory::Entry& scales,
                    const TensorPart& part, const TensorSlice& slice) {
  const auto rows_of = [&](const HfDirectory::Entry& entry) {
    return packed_rows(view_bytes(entry.bytes, at::kByte, entry.tensor.shape).flatten(2), part,
                       slice);
  };
  return dequantized_mxfp4(rows_of(blocks), rows_of(scales))
      .narrow(-1, slice.local_offset.back(), slice.shape.back());
}

/// Returns the tensor; the bytes of a matrix in Q8_0.
at::Tensor view_entry(const HfDirectory::Entry& entry) {
  const bool is_q8_0 = entry.form.type == kGgufQ80;
  Shape shape = entry.tensor.shape;
  if (is_q8_0) shape.back() = shape.back() / 32 * 34;
  return restored_rows(
      view_bytes(entry.bytes,
                 is_q8_0 ? at::kByte : to_scalar_type(entry.tensor.type, place_of(entry)), shape),
      entry.form);
}

void require_bytes(const HfDirectory::Entry& entry) {
  if (entry.tensor.type != SafetensorsDtype::U8)
    throw UserError({place_of(entry) + ": MXFP4 is stored as U8",
                     std::string(safetensors_dtype_name(entry.tensor.type)), ""});
}

}  // namespace

std::map<std::string, Sharding> declared_shardings(const ModelFamily& family,
                                                   const TransformerConfig& model, bool of_states) {
  std::map<std::string, Sharding> shardings;
  const auto whole = family.make(resolved(model), Rank{}, {});
  for (const Parameter* parameter : declared_parameters(*whole))
    if ((parameter->spec().kind == ParameterKind::state) == of_states)
      shardings.emplace(parameter->name(), parameter->sharding());
  return shardings;
}

HfReader::HfReader(const std::filesystem::path& folder)
    : directory_(folder), model_(resolved(directory_.config().model)) {
  link();
}

void HfReader::link() {
  const HfFamily& family = directory_.family();
  const ModelFamily& network = find_model_family(family.network);
  auto shardings = declared_shardings(network, model_);
  std::vector<std::string> names, missing, misshapen;
  for (const auto& [name, sharding] : shardings) names.push_back(name);
  const auto& tensors = directory_.tensors();
  const std::string embedding = hf_embedding_name(family), &output_layer = family.output_layer;
  // safetensors.torch.save_model() writes tied tensors once, under the name that sorts first.
  const bool has_only_output_layer = !model_.untie_embeddings_and_output_weights &&
                                     !tensors.contains(embedding) && tensors.contains(output_layer);
  const auto links = [&] {
    auto found =
        map_weights(family, names, model_.moe.num_experts,
                    {model_.num_layers, model_.mtp_num_layers, model_.gated_linear_unit, &model_});
    for (WeightMapping& link : found)
      if (!link.alternatives.empty() && tensors.contains(link.alternatives.front().name))
        link.theirs = link.alternatives;
    return found;
  };
  for (WeightMapping& link : links()) {
    HfTensor& first = link.theirs.front();
    if (has_only_output_layer && first.name == embedding) first.name = output_layer;
    weights_.push_back(link_weight(link, shardings.at(link.ours), missing, misshapen));
    for (const HfTensor& copy : link.copies) {
      const auto found = tensors.find(copy.name);
      if (found == tensors.end() || !tensors.contains(first.name)) continue;
      used_.insert(copy.name);
      if (!repeats(found->second, first.name))
        throw UserError({place_of(found->second) + " differs from " + first.name, "",
                         model_.mtp_num_layers > 0
                             ? "multi-token prediction shares them here: make them equal, or set "
                               "num_nextn_predict_layers to 0 and remove its tensors"
                             : "they are one weight here: make them equal"});
    }
  }
  shardings = declared_shardings(network, model_, /*of_states=*/true);
  std::erase_if(shardings, [&](const auto& state) { return !has_hf_tensor(family, state.first); });
  names.clear();
  for (const auto& [name, sharding] : shardings) names.push_back(name);
  for (const WeightMapping& link : links())
    states_.push_back(link_weight(link, shardings.at(link.ours), missing, misshapen));
  Problems problems;
  const auto add = [&](const std::string& what, const std::vector<std::string>& found,
                       const std::string& fix) {
    if (!found.empty())
      problems.add({directory_.folder().string() + ": tensors that " + what,
                    std::to_string(found.size()) + name_lines(found), fix});
  };
  const std::string belongs = "check that config.json belongs to these weights";
  add("config.json asks for are missing", missing,
      belongs + ", and download the folder again if a file of it is missing");
  add("have other shapes than config.json says", misshapen, belongs);
  add("model_type '" + config().model_type + "' does not use", unused(),
      "check model_type in config.json; merge adapters and undo quantisation first");
  problems.throw_if_any();
}

/// Finds the tensors of a parameter and checks their shapes. The parameter takes their type, or
/// float32 when they differ in it.
WeightInfo HfReader::link_weight(const WeightMapping& link, const Sharding& sharding,
                                 std::vector<std::string>& missing,
                                 std::vector<std::string>& misshapen) {
  std::optional<at::ScalarType> type;
  const auto require_shape = [&](const HfDirectory::Entry& entry, const Shape& shape) {
    if (entry.tensor.shape != shape)
      misshapen.push_back(place_of(entry) + ": " + shape_text(entry.tensor.shape) + ", expected " +
                          shape_text(shape));
  };
  const auto find = [&](const std::string& name) -> const HfDirectory::Entry* {
    const auto found = directory_.tensors().find(name);
    if (found == directory_.tensors().end()) return nullptr;
    used_.insert(name);
    return &found->second;
  };
  for (const HfTensor& theirs : link.theirs) {
    const HfDirectory::Entry *entry = find(theirs.name), *scales = nullptr;
    Shape shape = theirs.part.shape(sharding);
    const bool is_packed = entry == nullptr && theirs.part.is_transposed && shape.size() == 3;
    if (is_packed) {
      entry = find(theirs.name + "_blocks");
      scales = find(theirs.name + "_scales");
      shape = {shape[0], shape[2], ceil_div(shape[1], kMxfp4Block)};
    }
    if (entry == nullptr || (is_packed && scales == nullptr)) {
      missing.push_back(theirs.name + (entry != nullptr    ? "_scales"
                                       : scales != nullptr ? "_blocks"
                                                           : ""));
      continue;
    }
    at::ScalarType own = at::kBFloat16;
    if (is_packed) {
      require_shape(*scales, shape);
      shape.push_back(kMxfp4Block / 2);
      for (const HfDirectory::Entry* bytes : {entry, scales}) require_bytes(*bytes);
    } else {
      own = to_scalar_type(entry->tensor.type, place_of(*entry));
    }
    require_shape(*entry, shape);
    type = type.value_or(own) == own ? own : at::kFloat;
    sources_[link.ours].push_back(
        {entry, scales, theirs.part, theirs.part.slices(sharding), at::Tensor()});
  }
  return {link.ours, sharding.global_shape, type.value_or(at::kFloat)};
}

std::vector<std::string> HfReader::unused() const {
  const HfFamily& family = directory_.family();
  const std::string embedding = hf_embedding_name(family), &output_layer = family.output_layer;
  const std::string& tied = directory_.tensors().contains(embedding) ? embedding : output_layer;
  std::set<std::string> outputs;  // repeat the embedding: the head, and those of depths
  if (!model_.untie_embeddings_and_output_weights) {
    outputs.insert(output_layer);
    const std::string ours[] = {"output_layer.weight"};
    if (has_hf_tensor(family, ours[0])) {
      const auto mapped = map_weights(family, ours, 0, {model_.num_layers, model_.mtp_num_layers});
      for (const HfTensor& copy : mapped.front().copies) outputs.insert(copy.name);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, entry] : directory_.tensors()) {
    if (used_.contains(name) || is_hf_buffer(family, name)) continue;
    if (outputs.contains(name)) {
      if (repeats(entry, tied)) continue;
      throw UserError(
          {place_of(entry) + " differs from the embedding although config.json ties them", "",
           "set tie_word_embeddings to false in config.json"});
    }
    names.push_back(entry.tensor.name);
  }
  return names;
}

bool HfReader::repeats(const HfDirectory::Entry& copy, const std::string& name) const {
  const HfDirectory::Entry& first = directory_.tensors().at(name);
  if (first.tensor.type != copy.tensor.type || first.tensor.shape != copy.tensor.shape)
    return false;
  return std::ranges::equal(first.bytes, copy.bytes);
}

void HfReader::copy_slice(const std::string& name, const TensorSlice& slice,
                          at::Tensor destination) {
  if (name != last_name_) {
    for (Source& source : sources_[last_name_]) source.view.reset();
    last_name_ = name;
  }
  const TensorSlice wanted = slice_at(slice.global_offset, slice.shape);
  for (Source& source : sources_.at(name)) {
    for (const TensorSlice& held : source.slices) {
      const auto from = intersect(held, wanted), to = intersect(wanted, held);
      if (!from || !to) continue;
      at::Tensor target = narrow_to(destination, to->local_offset, to->shape);
      if (source.scales != nullptr) {
        target.copy_(unpacked(*source.entry, *source.scales, source.part, *from));
        continue;
      }
      if (!source.view.defined()) source.view = source.part.oriented(view_entry(*source.entry));
      if (source.view.scalar_type() == at::kByte)
        target.copy_(dequantized_q8_0(packed_rows(source.view, source.part, *from))
                         .narrow(-1, from->local_offset.back(), from->shape.back()));
      else
        target.copy_(source.part.region(source.view, from->local_offset, from->shape));
    }
  }
}

}  // namespace megatron
