#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <regex>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/checkpoint/piece_slices.h"

namespace megatron {
namespace {

constexpr std::string_view kLayers = "decoder.layers.", kOptimizer = "optimizer.state.",
                           kExperts = ".mlp.experts.experts.", kOurExperts = ".mlp.experts.";

/// std::regex takes stack for each character of a name.
constexpr std::size_t kLongestName = 1000;

/// The states of optimizers by Megatron's names and ours. The first one with our name is written.
const std::array<std::pair<std::string_view, std::string_view>, 5> kStates{{
    {"param.", kMainParameterPrefix},
    {"fp32_param.", kMainParameterPrefix},
    {"exp_avg_sq.", "exp_avg_sq."},
    {"exp_avg.", "exp_avg."},
    {"momentum_buffer.", "momentum_buffer."},
}};

/// Norms that stand alone, and the same norms in the linear layer behind them; other spellings.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNorms{{
    {".input_layernorm.", ".self_attention.linear_qkv.layer_norm_"},
    {".input_layernorm.", ".self_attention.in_proj.layer_norm_"},
    {".norm.", ".mixer.in_proj.layer_norm_"},
    {".final_layernorm.", ".final_norm."},
    {".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_"},
    {".q_layernorm.", ".linear_q_up_proj.layer_norm_"},
    {".kv_layernorm.", ".linear_kv_up_proj.layer_norm_"},
}};

/// Takes the number of one of several optimizers, "chained_N.", off a name.
std::string_view without_chain(std::string_view name) {
  constexpr std::string_view kChain = "chained_";
  const auto end = name.find('.');
  return name.starts_with(kChain) && end != name.npos ? name.substr(end + 1) : name;
}

/// Returns the state of an optimizer that a name begins with; nullptr for other names.
const std::pair<std::string_view, std::string_view>* find_state(std::string_view name) {
  if (!name.starts_with(kOptimizer)) return nullptr;
  name.remove_prefix(kOptimizer.size());
  const auto* state =
      std::ranges::find_if(kStates, [&](const auto& one) { return name.starts_with(one.first); });
  return state == kStates.end() ? nullptr : state;
}

/// Returns element `index` along the first axis, which is dropped.
ManifestTensor element(const ManifestTensor& stacked, std::int64_t index) {
  ManifestTensor one{.type = stacked.type,
                     .shape = Shape(stacked.shape.begin() + 1, stacked.shape.end())};
  for (const Piece& piece : stacked.pieces) {
    const std::int64_t first = piece.slice.global_offset.front(), count = piece.slice.shape.front();
    if (index < first || index >= first + count) continue;
    Piece& part = one.pieces.emplace_back(piece);
    for (Shape* shape : {&part.slice.global_offset, &part.slice.local_offset, &part.slice.shape})
      shape->erase(shape->begin());
    *part.offset += static_cast<std::uint64_t>((index - first) * num_elements(part.slice.shape)) *
                    element_size(one.type);
  }
  return one;
}

/// Returns what a tensor is of the one that its name begins with; nullopt for a whole tensor.
std::optional<SavedRows> find_saved_rows(const std::string& name, const DeclaredTensors& declared) {
  const auto end = name.rfind('.');
  const auto found = declared.shardings.find(name.substr(0, end));
  if (end == std::string::npos || found == declared.shardings.end()) return std::nullopt;
  for (const SavedRows& rows : rows_saved_apart(found->first, found->second))
    if (rows.name == std::string_view(name).substr(end + 1)) return rows;
  return std::nullopt;
}

void add(const std::string& prefix, std::string name, ManifestTensor tensor,
         const DeclaredTensors& declared, const std::string& source, Manifest& manifest) {
  if (const auto place = name.find(kExperts); place != std::string::npos)
    name.replace(place, kExperts.size(), kOurExperts);
  name = declared.our_name(std::move(name));
  const std::string what = source + ": tensor '" + prefix + name + "'";
  const auto rows = find_saved_rows(name, declared);
  if (rows) name.resize(name.rfind('.'));
  const auto parameter = declared.shardings.find(name);
  if (parameter == declared.shardings.end())
    throw UserError({what, "the model has no such parameter", "check the args of the checkpoint"});
  const Shape& whole = parameter->second.global_shape;
  Shape expected = whole;
  if (rows) expected.front() = rows->count;
  if (expected != tensor.shape)
    throw UserError({what + ": " + shape_text(tensor.shape), "expected " + shape_text(expected),
                     "check the args of the checkpoint"});
  ManifestTensor& to = manifest.tensors[prefix + name];
  if (!to.pieces.empty() && to.type != tensor.type)
    throw UserError({what, "its type differs from that of the parts beside it", ""});
  to.kind = prefix.empty() ? declared.kind(name) : TensorKind::optimizer;
  to.type = tensor.type;
  to.shape = whole;
  for (Piece& piece : tensor.pieces) {
    if (rows) piece.slice.global_offset.front() += rows->first;
    to.pieces.push_back(std::move(piece));
  }
}

/// Returns the number of elements before a slice in a tensor of `shape`; nullopt if the slice has
/// gaps there.
std::optional<std::int64_t> first_element(const Shape& shape, const TensorSlice& slice) {
  std::int64_t first = 0;
  bool is_one_row = true;  // of the axes before
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!is_one_row && slice.shape[i] != shape[i]) return std::nullopt;
    is_one_row = is_one_row && slice.shape[i] == 1;
    first = first * shape[i] + slice.local_offset[i];
  }
  return first;
}

}  // namespace

void StoredElements::append(const StoredElements& other, std::int64_t first, std::int64_t size,
                            const std::string& place) {
  if (!runs.empty() && dtype != other.dtype)
    throw UserError({place, "its type differs between the files", ""});
  if (first + size > other.count())
    throw UserError({place + " has " + std::to_string(size) + " elements",
                     "the shards have " +
                         std::to_string(std::max<std::int64_t>(other.count() - first, 0)) +
                         " of them",
                     "copy the whole folder"});
  dtype = other.dtype;
  for (const StoredRun& run : other.runs) {
    const std::int64_t low = std::max(first, run.first),
                       high = std::min(first + size, run.first + run.count);
    if (low < high)
      runs.push_back(
          {.file = run.file,
           .offset = run.offset + static_cast<std::uint64_t>(low - run.first) * dtype.element_size,
           .first = count(),
           .count = high - low});
  }
}

StoredElements stored_elements(const TorchTensor& tensor, const std::string& file,
                               const std::string& place) {
  if (!tensor.is_contiguous()) throw UserError({place, "its elements are not in order", ""});
  return {.dtype = tensor.dtype,
          .runs = {{.file = file, .offset = tensor.bytes().begin, .count = tensor.num_elements()}}};
}

RankTensor whole_tensor(const TorchTensor& tensor, const std::string& file,
                        const std::string& place) {
  return {.shape = tensor.shape, .states = {{"", stored_elements(tensor, file, place)}}};
}

bool add_pieces(const StoredElements& elements, const Shape& shape, const TensorSlice& slice,
                std::vector<Piece>& pieces) {
  const auto begin = first_element(shape, slice);
  if (!begin) return false;
  const std::int64_t end = *begin + num_elements(slice.shape);
  for (const StoredRun& run : elements.runs) {
    const std::int64_t low = std::max(*begin, run.first),
                       high = std::min(end, run.first + run.count);
    const bool is_whole = low == *begin && high == end;
    std::uint64_t offset =
        run.offset + static_cast<std::uint64_t>(low - run.first) * elements.dtype.element_size;
    for (const TensorSlice& part : is_whole
                                       ? std::vector{whole_slice(slice.shape)}
                                       : flat_range_slices(slice.shape, low - *begin, high - low)) {
      Shape place = slice.global_offset;
      for (std::size_t i = 0; i < place.size(); ++i) place[i] += part.global_offset[i];
      pieces.push_back({.file = run.file, .slice = slice_at(place, part.shape), .offset = offset});
      offset += static_cast<std::uint64_t>(num_elements(part.shape)) * elements.dtype.element_size;
    }
  }
  return true;
}

bool add_rank_tensor(const std::string& name, const RankTensor& tensor, const Shape& shape,
                     const std::vector<TensorSlice>& slices, const DeclaredTensors& declared,
                     const std::string& place, Manifest& manifest) {
  bool is_in_order = true;
  for (const auto& [state, elements] : tensor.states) {
    const SafetensorsDtype type = safetensors_dtype(elements.dtype, place);
    ManifestTensor& to = manifest.tensors[state + name];
    if (!to.pieces.empty() && to.type != type)
      throw UserError({place, "its type differs from that of other ranks", ""});
    to.kind = state.empty() ? declared.kind(name) : TensorKind::optimizer;
    to.is_frozen = tensor.is_frozen;
    to.type = type;
    to.shape = declared.shardings.at(name).global_shape;
    for (const TensorSlice& slice : slices)
      is_in_order = add_pieces(elements, shape, slice, to.pieces) && is_in_order;
  }
  return is_in_order;
}

std::vector<SavedRows> rows_saved_apart(std::string_view name, const Sharding& sharding) {
  using Names = std::vector<std::string_view>;
  static const Names mamba{"z", "x", "B", "C", "dt"},
      delta_net{"query", "key", "value", "z", "beta", "alpha"}, mamba_conv{"x", "B", "C"},
      delta_net_conv{"query", "key", "value"};
  if (sharding.splits.size() != 1) return {};
  const std::vector<ShardBlock>& blocks = sharding.splits.front().blocks;
  const Names* names = nullptr;
  if (name.ends_with(".in_proj.weight")) names = blocks.size() == 5 ? &mamba : &delta_net;
  if (name.ends_with(".conv1d.weight") || name.ends_with(".conv1d.bias"))
    names = !blocks.empty() && blocks.front().splittable ? &mamba_conv : &delta_net_conv;
  std::vector<SavedRows> rows;
  for (std::int64_t first = 0; names != nullptr && rows.size() < blocks.size();) {
    const std::int64_t count = blocks[rows.size()].size;
    rows.push_back({names->at(rows.size()), std::exchange(first, first + count), count});
  }
  return rows;
}

std::string DeclaredTensors::our_name(std::string name) const {
  if (shardings.contains(name)) return name;
  for (const auto& [alone, fused] : kNorms)
    for (const auto& [from, to] : {std::pair(alone, fused), std::pair(fused, alone)})
      if (const auto place = name.find(from); place != std::string::npos) {
        std::string other = std::string(name).replace(place, from.size(), to);
        if (shardings.contains(other)) return other;
      }
  return name;
}

void add_torch_dist_tensors(const ForeignTensors& theirs, const DeclaredTensors& declared,
                            const std::string& source, Manifest& manifest) {
  bool has_states = false, is_unusable = false;
  for (const auto& [full_name, tensor] : theirs) {
    std::string_view name = without_chain(full_name);
    std::string prefix;
    const auto* state = find_state(name);
    if (state == nullptr && name.starts_with("optimizer.")) {
      is_unusable = true;
      continue;
    }
    if (state != nullptr) {
      has_states = true;
      prefix = state->second;
      name.remove_prefix(kOptimizer.size() + state->first.size());
    }
    const bool is_stacked = name.starts_with(kLayers) && name.size() > kLayers.size() &&
                            std::isdigit(static_cast<unsigned char>(name[kLayers.size()])) == 0;
    if (!is_stacked) {
      add(prefix, std::string(name), tensor, declared, source, manifest);
      continue;
    }
    if (tensor.shape.empty())
      throw UserError({source + ": tensor '" + full_name + "' has no axis of layers", "", ""});
    for (std::int64_t layer = 0; layer < tensor.shape.front(); ++layer)
      add(prefix,
          std::string(kLayers) + std::to_string(layer) + "." +
              std::string(name.substr(kLayers.size())),
          element(tensor, layer), declared, source, manifest);
  }
  if (is_unusable)
    manifest.no_optimizer =
        "its optimizer's buffers can only be read in the layout of the run that saved them: save "
        "again with Megatron-LM's --dist-ckpt-optim-fully-reshardable, or with "
        "ckpt_parallel_save_optim=True of NeMo's MegatronStrategy";
  if (!has_states || is_unusable) {
    manifest.optimizer.reset();
    std::erase_if(manifest.tensors,
                  [](const auto& one) { return one.second.kind == TensorKind::optimizer; });
  }
}

TorchDistPlace torch_dist_place(const std::string& state, std::string name,
                                std::int64_t num_stacked) {
  TorchDistPlace place;
  const std::size_t begin = kLayers.size(), end = name.find('.', begin);
  if (num_stacked > 0 && name.starts_with(kLayers) && end != std::string::npos) {
    if (const auto layer = exact_number<std::int64_t>(name.substr(begin, end - begin))) {
      place = {.stack = {num_stacked}, .offset = {*layer}};
      name.erase(begin, end + 1 - begin);
    }
  }
  if (const auto at = name.find(kOurExperts); at != std::string::npos)
    name.replace(at, kOurExperts.size(), kExperts);
  const auto* const known =
      std::ranges::find(kStates, state, &std::pair<std::string_view, std::string_view>::second);
  if (!state.empty()) place.name = kOptimizer;
  place.name += known == kStates.end() ? state : known->first;
  place.name += name;
  return place;
}

std::optional<DtensorPart> dtensor_part(const std::string& name) {
  static const std::regex kWeight(R"(model\d*\.(?:module\.)*(.+?)(?:_([wv]))?)"),
      kState(R"(optimizer\.(?:\d+\.)?state\.(?:module\.)*(.+?)(?:_([wv]))?)"
             R"(\.(exp_avg|exp_avg_sq|momentum_buffer|master_param))"),
      kExpert(R"((.*\.mlp\.experts\.)(?:local_experts\.(\d+)\.)?(.*?)(\d*))");
  std::smatch match, expert;
  if (name.size() > kLongestName) return std::nullopt;
  const bool is_state = std::regex_match(name, match, kState);
  if (!is_state && !std::regex_match(name, match, kWeight)) return std::nullopt;
  DtensorPart part{.name = match[1]};
  if (part.name.ends_with("._extra_state")) return std::nullopt;
  if (match[2].matched) part.half = match[2] == "v" ? 1 : 0;
  if (const std::string whole = part.name; std::regex_match(whole, expert, kExpert)) {
    const std::string number = expert[2].matched ? expert[2] : expert[4];
    if (!number.empty()) part.expert = small_number(number);
    if (!number.empty() && !part.expert) return std::nullopt;
    part.name = expert[1].str() + expert[3].str();
  }
  if (is_state)
    part.name = "optimizer.state." +
                (match[3] == "master_param" ? std::string("param") : match[3].str()) + "." +
                part.name;
  return part;
}

void add_dtensor_part(const DtensorPart& part, ManifestTensor tensor, const std::string& place,
                      ForeignTensors& tensors) {
  if (part.half && tensor.shape.empty()) throw UserError({place, "half of a number", ""});
  const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
  if (part.half) tensor.shape.front() *= 2;
  if (part.expert) tensor.shape.insert(tensor.shape.begin(), *part.expert + 1);
  for (Piece& piece : tensor.pieces) {
    auto& [offset, local, shape] = piece.slice;
    if (part.half) offset.front() += *part.half * rows;
    if (!part.expert) continue;
    offset.insert(offset.begin(), *part.expert);
    local.insert(local.begin(), 0);
    shape.insert(shape.begin(), 1);
  }
  ManifestTensor& whole = tensors[part.name];
  if (!whole.pieces.empty() && whole.type != tensor.type)
    throw UserError({place, "its type differs from that of the parts beside it", ""});
  if (part.expert && !whole.shape.empty())
    tensor.shape.front() = std::max(tensor.shape.front(), whole.shape.front());
  whole.type = tensor.type;
  whole.shape = tensor.shape;
  std::ranges::move(tensor.pieces, std::back_inserter(whole.pieces));
}

}  // namespace megatron
