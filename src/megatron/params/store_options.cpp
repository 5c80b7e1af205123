#include "megatron/params/store_options.h"

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/rank.h"

namespace megatron {

ParamStore::Options store_options(const Settings& settings, const Rank& rank, c10::ScalarType dtype,
                                  Communicators* communicators) {
  const TrainingConfig& training = *settings.training;
  const bool has_bf16_gradients =
      training.grad_reduce_in_bf16 || settings.optimizer->main_grads_dtype == "bf16";
  ParamStore::Options options{
      .device = rank.device,
      .dtype = dtype,
      .grad_dtype = has_bf16_gradients     ? at::kBFloat16
                    : dtype == at::kDouble ? at::kDouble
                                           : at::kFloat,
      .has_grad_error_feedback = settings.optimizer->main_grads_error_feedback,
      .with_gradients = !training.skip_train,
      .data_parallel = data_parallel(*settings.parallel, rank, communicators),
      .model = rank.model,
      .pipeline = rank.pp,
      .communicators = communicators};
  if (rank.ep.size > 1 || rank.etp.size != rank.tp.size)
    options.experts = expert_groups(*settings.parallel, rank, communicators);
  return options;
}

c10::ScalarType params_dtype(const TrainingConfig& training) {
  if (training.bf16) return c10::kBFloat16;
  return training.fp16 ? c10::kHalf : c10::kFloat;
}

}  // namespace megatron
