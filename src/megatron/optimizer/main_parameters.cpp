#include "megatron/optimizer/main_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/params/init.h"

namespace megatron {
namespace {

bool has_16_bits(const ParamBucket& bucket) {
  return bucket.is_trained && c10::elementSize(bucket.dtype) == 2;
}

}  // namespace

MainParameters::MainParameters(ParamStore& store, const StateOffloadOptions& offload)
    : store_(store),
      has_fp32_copies_(std::ranges::any_of(store.buckets(), has_16_bits)),
      sums_(store) {
  if (offload.store) offload_ = std::make_shared<StateOffload>(store, sums_.ranges(), offload);
  const auto is_offloaded = [this](std::size_t piece) {
    return has_fp32_copies_ && offload_ && offload_->contains(piece) &&
           !store_.buckets()[pieces()[piece].bucket].is_precise;
  };
  if (offload_ && has_fp32_copies_)
    offloaded_ = std::make_unique<OffloadedArray>(
        offload_, store,
        OffloadedArray::Options{.device = store.device(), .selects = is_offloaded});
  std::vector<bool> has_offloaded(store.buckets().size(), false);
  for (std::size_t i = 0; i < pieces().size(); ++i)
    if (is_offloaded(i)) has_offloaded[pieces()[i].bucket] = true;
  for (std::size_t b = 0; b < store.buckets().size() && has_fp32_copies_; ++b) {
    const ParamBucket& bucket = store.buckets()[b];
    fp32_copies_.emplace_back();
    if (!bucket.is_trained || has_offloaded[b]) continue;
    fp32_copies_.back() = at::empty({bucket.main_size()},
                                    at::TensorOptions().dtype(at::kFloat).device(store.device()));
    if (!bucket.is_precise) continue;
    if (bucket.shards_values()) {
      store.unit_values()->set_main_slice(b, fp32_copies_.back());
      continue;
    }
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
      bucket.parameters[i]->set_main(bucket.of_parameter(fp32_copies_.back(), i));
  }
  bind_tensors();
  if (std::ranges::any_of(store.buckets(), &ParamBucket::gathers_after_update))
    param_gather_.emplace(store, fp32_copies_);
  copy_model_params_to_main_params();
}

void MainParameters::bind_tensors() {
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    const ParameterPiece& piece = pieces()[i];
    const ParamBucket& bucket = store_.buckets()[piece.bucket];
    if (offloaded_ && offloaded_->contains(i)) {
      tensors_.emplace_back();
    } else if (!has_fp32_copies_) {
      tensors_.push_back(piece.of_own(bucket.own_value, bucket));
    } else if (fp32_copies_[piece.bucket].defined()) {
      tensors_.push_back(
          fp32_copies_[piece.bucket].narrow(0, piece.offset - bucket.main_begin(), piece.count));
    } else {
      tensors_.push_back(
          at::empty({piece.count}, at::TensorOptions().dtype(at::kFloat).device(store_.device())));
    }
  }
}

MainParameters::~MainParameters() {
  if (store_.unit_values() != nullptr) store_.unit_values()->forget_main_slices();
  for (Parameter* parameter : store_.parameters()) parameter->set_main({});
}

std::int64_t MainParameters::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& copy : fp32_copies_) {
    if (copy.defined()) bytes += static_cast<std::int64_t>(copy.nbytes());
  }
  for (std::size_t i = 0; i < tensors_.size() && has_fp32_copies_; ++i) {
    if (tensors_[i].defined() && !fp32_copies_[pieces()[i].bucket].defined())
      bytes += static_cast<std::int64_t>(tensors_[i].nbytes());
  }
  return bytes;
}

at::Tensor MainParameters::copied_values(std::size_t bucket) const {
  const ParamBucket& of = store_.buckets()[bucket];
  return of.is_precise ? of.kept_value() : store_.read_own_values(bucket);
}

at::Tensor MainParameters::read(std::size_t index) {
  if (tensors_[index].defined()) return tensors_[index];
  at::Tensor flat = at::empty({pieces()[index].count}, at::TensorOptions().device(store_.device()));
  offloaded_->read_piece(index, [&](std::size_t window, std::size_t r, const SumRange& range) {
    flat.narrow(0, range.begin, range.count).copy_(offloaded_->elements(window, r));
  });
  return flat;
}

void MainParameters::write(std::size_t index, const at::Tensor& flat) {
  if (tensors_[index].defined()) {
    tensors_[index].copy_(flat);
    return;
  }
  offloaded_->visit_piece(index, [&](std::size_t window, std::size_t r, const SumRange& range) {
    offloaded_->elements(window, r).copy_(flat.narrow(0, range.begin, range.count));
  });
}

void MainParameters::initialize(std::uint64_t seed) {
  wait_all_gather_params();
  if (!has_fp32_copies_) {
    store_.initialize(seed);
    return gather_slices();
  }
  std::size_t piece = 0;
  for (Parameter* parameter : store_.parameters()) {
    const bool is_owned = piece < tensors_.size() && pieces()[piece].parameter == parameter;
    const Shape shape = parameter->local_shape();
    const bool is_whole = is_owned && pieces()[piece].count == num_elements(shape);
    if (!parameter->is_trained()) {
      const auto own = at::TensorOptions().dtype(parameter->dtype()).device(store_.device());
      const at::Tensor drawn = at::empty(shape, own);
      initialize_parameter(*parameter, drawn, seed);
      store_.set_value(*parameter, drawn);
      continue;
    }
    const bool is_bound = is_whole && tensors_[piece].defined();
    const auto options = at::TensorOptions().dtype(at::kFloat).device(store_.device());
    const at::Tensor drawn = is_bound ? tensors_[piece].view(shape) : at::empty(shape, options);
    initialize_parameter(*parameter, drawn, seed);
    store_.set_value(*parameter, drawn);
    if (parameter->has_main()) at::Tensor(parameter->precise_value()).copy_(drawn);
    if (is_owned && !is_bound) write(piece, pieces()[piece].of(drawn));
    piece += is_owned;
  }
  gather_slices();
}

void MainParameters::gather_slices() {
  if (store_.unit_values() == nullptr) return;
  for (std::size_t b = 0; b < store_.buckets().size(); ++b) {
    const ParamBucket& bucket = store_.buckets()[b];
    if (bucket.own_size == bucket.slice_size) continue;
    const Axis& replica = bucket.data_parallel->replica;
    store_.open_values(b);
    const at::Tensor& slice =
        has_fp32_copies_ && bucket.is_precise ? fp32_copies_[b] : bucket.slice_value;
    replica.comm->all_gather(slice, bucket.own_of_slice(slice), "weights of instances");
    store_.close_values(b);
  }
  store_.unit_values()->discard();
}

void MainParameters::copy_model_params_to_main_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (fp32_copies_[b].defined()) fp32_copies_[b].copy_(copied_values(b));
  }
  for (std::size_t i = 0; i < pieces().size() && has_fp32_copies_; ++i) {
    const ParameterPiece& piece = pieces()[i];
    if (fp32_copies_[piece.bucket].defined()) continue;
    write(i, piece.of_own(copied_values(piece.bucket), store_.buckets()[piece.bucket]));
  }
}

void MainParameters::copy_main_params_to_model_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (!fp32_copies_[b].defined()) continue;
    store_.open_values(b);
    copied_values(b).copy_(fp32_copies_[b]);
    store_.close_values(b);
  }
  for (std::size_t i = 0; i < pieces().size() && has_fp32_copies_; ++i) {
    const ParameterPiece& piece = pieces()[i];
    if (fp32_copies_[piece.bucket].defined()) continue;
    store_.open_values(piece.bucket);
    piece.of_own(copied_values(piece.bucket), store_.buckets()[piece.bucket]).copy_(read(i));
    store_.close_values(piece.bucket);
  }
  all_gather_params();
}

void MainParameters::all_gather_params() {
  gather_slices();
  if (param_gather_) param_gather_->start();
}

void MainParameters::wait_all_gather_params() {
  if (param_gather_) param_gather_->finish();
}

double MainParameters::norm() {
  const kernels::OptimizerOperations& operations = optimizer_operations(store_.device());
  at::Tensor table;
  const kernels::StatisticsPlan plan = sums_.plan(tensors_, table);
  const auto measure = [&](const kernels::StatisticsPlan& in_memory) {
    operations.sum_squares(in_memory);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].defined()) continue;
      std::vector<at::Tensor> one(tensors_.size());
      one[i] = read(i);
      at::Tensor chunks;
      operations.sum_squares(sums_.plan(one, chunks));
    }
  };
  sums_.run(measure, plan);
  double sum = 0;
  for (const double norm : sums_.norms()) sum += norm * norm;
  return std::sqrt(sum);
}

}  // namespace megatron
