#include "megatron/checkpoint/weight_reader.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/parallel/comm.h"
#include "megatron/params/param_store.h"

namespace megatron {

const std::vector<WeightInfo>& WeightReader::states() const {
  static const std::vector<WeightInfo> none;
  return none;
}

const WeightInfo* WeightReader::find(const std::string& name) const {
  for (const std::vector<WeightInfo>* infos : {&weights(), &states()}) {
    const auto found = std::ranges::lower_bound(*infos, name, {}, &WeightInfo::name);
    if (found != infos->end() && found->name == name) return &*found;
  }
  return nullptr;
}

at::Tensor WeightReader::read(const std::string& name) {
  const WeightInfo* info = find(name);
  MEGATRON_CHECK(info != nullptr, "there is no weight named ", name);
  at::Tensor whole = at::empty(info->shape, at::TensorOptions().dtype(info->type));
  copy_slice(name, whole_slice(info->shape), whole);
  return whole;
}

void fill_piece(WeightReader& reader, const ParameterPiece& piece, const std::string& name,
                at::Tensor flat, const Axis& holders) {
  if (holders.comm != nullptr) {
    if (holders.rank == 0) fill_piece(reader, piece, name, flat);
    return holders.comm->broadcast(flat, 0, "checkpoint");
  }
  const Parameter& parameter = *piece.parameter;
  const std::vector<TensorSlice> slices = piece_slices(piece, parameter.slices());
  std::int64_t filled = 0;
  for (const TensorSlice& slice : slices) filled += num_elements(slice.shape);
  if (filled < flat.numel()) flat.zero_();
  for (const TensorSlice& slice : slices)
    reader.copy_slice(name, slice, view_slice(flat, piece, slice));
}

bool has_weight_of(const WeightReader& reader, const Parameter& parameter) {
  const WeightInfo* info = reader.find(parameter.name());
  return info != nullptr && info->shape == parameter.sharding().global_shape;
}

void fill_store(WeightReader& reader, const std::string& source, ParamStore& store,
                bool replaces_heads) {
  // Weights of heads; those of the encoder must be in the checkpoint.
  const auto may_be_new = [&](const std::string& name) {
    return replaces_heads && !name.starts_with("embedding.") && !name.starts_with("encoder.");
  };
  const std::vector<std::string> names = all_parameter_names(store, [](const Parameter& parameter) {
    return parameter.spec().kind != ParameterKind::state;
  });
  std::vector<std::string> missing, unexpected;
  for (const std::string& name : names) {
    if (reader.find(name) == nullptr && !may_be_new(name)) missing.push_back(name);
  }
  for (const Parameter* parameter : store.parameters()) {
    const WeightInfo* info = reader.find(parameter->name());
    if (info != nullptr && !has_weight_of(reader, *parameter) && !may_be_new(info->name)) {
      throw UserError({source + ": the shape of tensor '" + info->name + "' differs from the model",
                       shape_text(info->shape) + ", the model has " +
                           shape_text(parameter->sharding().global_shape),
                       "use the settings of the checkpoint"});
    }
  }
  for (const WeightInfo& info : reader.weights()) {
    if (!std::ranges::binary_search(names, info.name) && !may_be_new(info.name))
      unexpected.push_back(info.name);
  }
  require_same_names(source + ": its weights are not those of the model", missing, unexpected,
                     "load a checkpoint of this model, or use the settings of the checkpoint");
  for (const ParameterPiece& piece : store.kept_pieces()) {
    const std::string& name = piece.parameter->name();
    if (!has_weight_of(reader, *piece.parameter)) continue;
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    store.change_kept(piece, [&](const at::Tensor& flat) {
      fill_piece(reader, piece, name, flat, bucket.holders(bucket.shards_values()));
    });
  }
  store.end_changes();
}

}  // namespace megatron
