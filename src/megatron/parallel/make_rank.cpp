#include "megatron/parallel/make_rank.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

std::array<Axis*, 13> axes_of(Rank& rank) {
  return {&rank.tp,    &rank.cp,  &rank.dp, &rank.pp,  &rank.dp_cp,  &rank.tp_cp,       &rank.model,
          &rank.world, &rank.etp, &rank.ep, &rank.edp, &rank.etp_ep, &rank.expert_model};
}

/// An axis that only some runs have, and its ranks.
struct PartAxis {
  Axis* axis;
  RankList ranks;
};

/// Fills in the axes that only some runs have, without communicators.
std::vector<PartAxis> place_parts(const Mesh& mesh, Rank& rank, const RankOptions& options) {
  std::vector<PartAxis> parts;
  if (options.cp_a2a_size > 1) {
    auto [inner, outer] = mesh.instance_parts(rank.index, "cp", rank.cp.size / options.cp_a2a_size);
    parts = {{&rank.cp_a2a, std::move(inner)}, {&rank.cp_p2p, std::move(outer)}};
  }
  if (options.infers) parts.push_back({&rank.replica, mesh.group(rank.index, rank.replica.name)});
  std::vector<RankList> blocks;
  for (std::int64_t size = 2; options.hybrid_cp && rank.dp_cp.size % size == 0; size *= 2)
    blocks.push_back(mesh.instance_parts(rank.index, "dp-cp", rank.dp_cp.size / size).inner);
  for (const RankList& block : blocks)
    rank.cp_blocks.push_back({.name = "cp-block-" + std::to_string(block.size())});
  for (std::size_t i = 0; i < blocks.size(); ++i)
    parts.push_back({&rank.cp_blocks[i], std::move(blocks[i])});
  for (const auto& [axis, ranks] : parts) {
    axis->rank = std::ranges::find(ranks, rank.index) - ranks.begin();
    axis->size = static_cast<std::int64_t>(ranks.size());
  }
  return parts;
}

/// Places a rank on every axis, without communicators. Returns the axes that only some runs have.
std::vector<PartAxis> place(const Mesh& mesh, Rank& rank, const RankOptions& options) {
  for (Axis* axis : axes_of(rank)) {
    axis->rank = mesh.coordinate(rank.index, axis->name);
    axis->size = mesh.size(axis->name);
  }
  MEGATRON_CHECK(rank.etp_ep.rank == rank.ep.rank * rank.etp.size + rank.etp.rank, "rank ",
                 rank.index, ": the ranks of etp are not adjacent in etp-ep");
  MEGATRON_CHECK(rank.tp_cp.rank == rank.cp.rank * rank.tp.size + rank.tp.rank, "rank ", rank.index,
                 ": the ranks of tp are not adjacent in tp-cp");
  rank.sequence_parallel = options.sequence_parallel && rank.tp.size > 1;
  rank.device = options.device;
  rank.seed = options.seed;
  return place_parts(mesh, rank, options);
}

}  // namespace

const Axis& Rank::context_axis(std::int64_t ranks) const {
  if (ranks == cp.size) return cp;
  for (const Axis& block : cp_blocks)
    if (block.size == ranks) return block;
  static const Axis alone{"cp"};
  MEGATRON_CHECK(ranks == 1, "there is no axis of ", ranks, " ranks for a sequence");
  return alone;
}

Rank make_rank(const Mesh& mesh, std::int64_t index, const RankOptions& options) {
  Rank rank;
  rank.index = index;
  place(mesh, rank, options);
  return rank;
}

Rank make_rank(const Mesh& mesh, Communicators& communicators, const RankOptions& options) {
  MEGATRON_CHECK(communicators.world_size() == mesh.world_size(), "the mesh has ",
                 mesh.world_size(), " ranks, the world ", communicators.world_size());
  Rank rank;
  rank.index = communicators.rank();
  const std::vector<PartAxis> parts = place(mesh, rank, options);
  for (Axis* axis : axes_of(rank)) {
    if (axis->size > 1)
      axis->comm = communicators.group(mesh.group(rank.index, axis->name), axis->name);
  }
  for (const auto& [axis, ranks] : parts) {
    if (axis->size > 1) axis->comm = communicators.group(ranks, axis->name);
  }
  rank.activities = &communicators.counters().activities();
  return rank;
}

}  // namespace megatron
