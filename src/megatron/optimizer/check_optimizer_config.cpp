#include "megatron/optimizer/check_optimizer_config.h"

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"

namespace megatron {
namespace {

void require(bool condition, const char* what, const std::string& got, const char* fix) {
  if (!condition) throw UserError({what, got, fix});
}

}  // namespace

void check_optimizer_config(const OptimizerConfig& config) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  require(
      config.optimizer == "adam" || config.optimizer == "sgd" || config.optimizer == "adafactor",
      "--optimizer", config.optimizer, "choose adam, sgd or adafactor");
  require(is_beta(config.adam_beta1), "--adam-beta1 must lie in [0, 1)",
          std::to_string(config.adam_beta1), "0.9 is usual");
  require(is_beta(config.adam_beta2), "--adam-beta2 must lie in [0, 1)",
          std::to_string(config.adam_beta2), "0.999 or 0.95 are usual");
  require(config.adam_eps >= 0, "--adam-eps must not be negative", std::to_string(config.adam_eps),
          "1e-8 is usual");
  require(config.sgd_momentum >= 0, "--sgd-momentum must not be negative",
          std::to_string(config.sgd_momentum), "0.9 is usual");
  require(config.clip_grad >= 0, "--clip-grad must not be negative",
          std::to_string(config.clip_grad), "0 turns clipping off");
}

}  // namespace megatron
