#include "megatron/checkpoint/refit.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

using Tensors = std::map<std::string, ManifestTensor>;

/// Returns the slices that a rank gives: any two ranks give the same one or disjoint ones. Of
/// stages that share a weight, the first gives it; a block that ranks share may be merged with its
/// neighbours, other ones on each rank, so its owner gives it.
std::vector<TensorSlice> given_slices(const Parameter& parameter) {
  bool is_owned = !parameter.spec().holders.is_owner;
  for (const AxisSplit& split : parameter.sharding().splits)
    for (const ShardBlock& block : split.blocks) is_owned = is_owned || !block.splittable;
  return is_owned ? parameter.owned_slices() : parameter.slices();
}

/// Returns what all ranks have in their pieces. The file of a piece of a tensor is its rank.
/// Collective over the world.
Tensors tensors_of_all(const ObjectGroup& world, const std::vector<ParameterPiece>& pieces,
                       bool gives) {
  Manifest mine, all;
  for (const ParameterPiece& piece : pieces) {
    const Parameter& parameter = *piece.parameter;
    ManifestTensor& tensor = mine.tensors[parameter.name()];
    if (parameter.spec().kind == ParameterKind::state) tensor.kind = TensorKind::state;
    tensor.type = to_safetensors_dtype(parameter.dtype());
    tensor.shape = parameter.sharding().global_shape;
    for (const TensorSlice& slice :
         piece_slices(piece, gives ? given_slices(parameter) : parameter.slices()))
      tensor.pieces.push_back({.file = std::to_string(world.axis.rank), .slice = slice});
  }
  for (const std::string& text : all_gather_strings(world, manifest_part_text(mine)))
    merge_manifest_part(all, text, "slices of a rank");
  return std::move(all.tensors);
}

/// Throws a UserError for weights that some rank wants and none holds in that shape.
void require_held(const Tensors& held, const Tensors& wanted) {
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : wanted) {
    const auto found = held.find(name);
    if (found == held.end() ? tensor.kind != TensorKind::state
                            : found->second.shape != tensor.shape)
      missing.push_back(name + " " + shape_text(tensor.shape));
  }
  require_no_names("no rank holds these weights in the shape that is wanted", missing,
                   "give both models the same architecture");
}

/// Returns the elements of a slice of a parameter in `flat`, which holds a piece of it.
at::Tensor view_of(const at::Tensor& flat, const ParameterPiece& piece, const TensorSlice& slice) {
  std::optional<TensorSlice> common;
  for (const TensorSlice& own : piece_slices(piece, piece.parameter->slices()))
    if (!common) common = intersect(own, slice);
  MEGATRON_CHECK(common.has_value(), piece.parameter->name(), " has no ",
                 shape_text(slice.global_offset));
  return view_slice(flat, piece, *common);
}

/// A tensor with the moves from and to this rank, and this rank's pieces of it; null for none.
struct MovingTensor {
  std::vector<SliceMove> moves;
  const ParameterPiece *source = nullptr, *destination = nullptr;
};

/// Fills a destination from `received`. `places` says where the next elements from each rank are.
void fill(const MovingTensor& tensor, std::int64_t rank, const at::Tensor& received,
          std::vector<std::int64_t>& places, const at::Tensor& flat) {
  std::int64_t missing = 0;
  for (const TensorSlice& slice :
       piece_slices(*tensor.destination, tensor.destination->parameter->slices()))
    missing += num_elements(slice.shape);
  if (missing < flat.numel()) flat.zero_();  // local padding
  for (const auto& [from, to, slice] : tensor.moves) {
    if (to != rank) continue;
    const std::int64_t count = num_elements(slice.shape);
    std::int64_t& place = places[static_cast<std::size_t>(from)];
    view_of(flat, *tensor.destination, slice)
        .copy_(received.narrow(0, std::exchange(place, place + count), count).view(slice.shape));
    missing -= count;
  }
  MEGATRON_CHECK(missing == 0, tensor.destination->parameter->name(), ": ", missing, " missing");
}

/// Moves tensors of one dtype. Returns the bytes that this rank sends to others. Collective.
std::int64_t move_tensors(const ObjectGroup& world, const std::vector<MovingTensor>& tensors,
                          at::ScalarType type, const ParamStore* from, ParamStore* to) {
  const auto me = static_cast<std::size_t>(world.axis.rank),
             size = static_cast<std::size_t>(world.axis.size);
  std::vector<at::Tensor> parts{at::empty({0}, at::TensorOptions(type).device(world.device))};
  RowCounts rows{.out = std::vector<std::int64_t>(size), .in = std::vector<std::int64_t>(size)};
  for (std::size_t peer = 0; peer < size; ++peer)
    for (const MovingTensor& tensor : tensors)
      for (const SliceMove& move : tensor.moves) {
        const std::int64_t count = num_elements(move.slice.shape);
        if (std::cmp_equal(move.from, peer) && std::cmp_equal(move.to, me)) rows.out[peer] += count;
        if (!std::cmp_equal(move.from, me) || !std::cmp_equal(move.to, peer)) continue;
        rows.in[peer] += count;
        parts.push_back(view_of(from->read_kept(*tensor.source), *tensor.source, move.slice)
                            .reshape({-1})
                            .to(world.device));
      }
  const at::Tensor sent = at::cat(parts), received = all_to_all(world.axis, sent, "refit", rows);
  std::vector<std::int64_t> places(size);
  std::exclusive_scan(rows.out.begin(), rows.out.end(), places.begin(), std::int64_t{0});
  for (const MovingTensor& tensor : tensors)
    if (tensor.destination != nullptr)
      to->change_kept(*tensor.destination, [&](const at::Tensor& flat) {
        fill(tensor, world.axis.rank, received, places, flat);
      });
  return (sent.numel() - rows.in[me]) * static_cast<std::int64_t>(c10::elementSize(type));
}

/// Returns the piece of a parameter; null if there is none.
const ParameterPiece* find(const std::vector<ParameterPiece>& pieces, const std::string& name) {
  for (const ParameterPiece& piece : pieces)
    if (piece.parameter->name() == name) return &piece;
  return nullptr;
}

}  // namespace

std::vector<SliceMove> plan_moves(const ManifestTensor& held, const ManifestTensor& wanted,
                                  std::int64_t rank) {
  std::map<std::pair<Shape, Shape>, std::vector<std::int64_t>> holders;
  for (const Piece& piece : held.pieces)
    holders[{piece.slice.global_offset, piece.slice.shape}].push_back(std::stoll(piece.file));
  std::vector<SliceMove> moves;
  for (const auto& [place, ranks] : holders) {
    const TensorSlice slice = slice_at(place.first, place.second);
    for (const Piece& wish : wanted.pieces) {
      const std::int64_t to = std::stoll(wish.file);
      const bool is_own = std::ranges::count(ranks, to) > 0;
      const std::int64_t from = is_own ? to : ranks[static_cast<std::size_t>(to) % ranks.size()];
      if (from != rank && to != rank) continue;
      if (auto common = intersect(slice, wish.slice))
        moves.push_back({from, to, *std::move(common)});
    }
  }
  return moves;
}

std::int64_t refit(const ObjectGroup& world, const ParamStore* from, ParamStore* to,
                   std::int64_t round_bytes) {
  std::vector<ParameterPiece> sources, destinations;
  if (from != nullptr) sources = from->kept_pieces();
  if (to != nullptr) destinations = to->kept_pieces();
  const Tensors held = tensors_of_all(world, sources, /*gives=*/true),
                wanted = tensors_of_all(world, destinations, /*gives=*/false);
  require_held(held, wanted);
  std::int64_t sent = 0, bytes = 0;
  SafetensorsDtype type = {};
  std::vector<MovingTensor> round;
  const auto end_round = [&] {
    if (!round.empty()) sent += move_tensors(world, round, to_scalar_type(type, "refit"), from, to);
    round.clear();
    bytes = 0;
  };
  for (const auto& [name, tensor] : wanted) {
    const auto source = held.find(name);
    if (source == held.end()) continue;
    const std::int64_t size =
        num_elements(tensor.shape) * static_cast<std::int64_t>(element_size(source->second.type));
    if (source->second.type != type || bytes + size > round_bytes) end_round();
    type = source->second.type;
    bytes += size;
    round.push_back({plan_moves(source->second, tensor, world.axis.rank), find(sources, name),
                     find(destinations, name)});
  }
  end_round();
  if (to != nullptr) to->end_changes();
  return sent;
}

}  // namespace megatron
