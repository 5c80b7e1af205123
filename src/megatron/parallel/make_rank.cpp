#include "megatron/parallel/make_rank.h"

#include <array>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::array<Axis*, 12> axes_of(Rank& rank) {
  return {&rank.tp,    &rank.cp,  &rank.dp, &rank.pp,  &rank.dp_cp,  &rank.model,
          &rank.world, &rank.etp, &rank.ep, &rank.edp, &rank.etp_ep, &rank.expert_model};
}

}  // namespace

Rank make_rank(const Mesh& mesh, std::int64_t index, const RankOptions& options) {
  Rank rank;
  rank.index = index;
  for (Axis* axis : axes_of(rank)) {
    axis->rank = mesh.coordinate(index, axis->name);
    axis->size = mesh.size(axis->name);
  }
  MEGATRON_CHECK(rank.etp_ep.rank == rank.ep.rank * rank.etp.size + rank.etp.rank,
                 "the ranks of etp do not lie side by side in etp-ep");
  rank.sequence_parallel = options.sequence_parallel && rank.tp.size > 1;
  rank.device = options.device;
  rank.seed = options.seed;
  return rank;
}

Rank make_rank(const Mesh& mesh, Communicators& communicators, const RankOptions& options) {
  MEGATRON_CHECK(communicators.world_size() == mesh.world_size(), "the mesh has ",
                 mesh.world_size(), " ranks, the world ", communicators.world_size());
  Rank rank = make_rank(mesh, communicators.rank(), options);
  for (Axis* axis : axes_of(rank)) {
    if (axis->size > 1)
      axis->comm = communicators.group(mesh.group(rank.index, axis->name), axis->name);
  }
  return rank;
}

}  // namespace megatron
