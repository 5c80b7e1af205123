#include "megatron/training/run/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <string>

#include "kernels/cpu/cpu_features.h"
#include "megatron/base/error.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

/// Sets the environment variable; UserError when it has a value that does not begin with `wanted`.
void require_variable(const char* name, const std::string& wanted, const char* why) {
  const char* given = std::getenv(name);
  if (given == nullptr) {
    setenv(name, wanted.c_str(), 0);
    return;
  }
  if (std::string(given).starts_with(wanted)) return;
  throw UserError({std::string("--deterministic-mode: the environment has ") + name + "=" + given,
                   why, std::string("unset it, or set ") + name + "=" + wanted});
}

/// Enables the MKL mode whose summation order does not depend on the number of threads (only Intel
/// CPUs need it).
void fix_mkl() {
  const char* given = std::getenv("MKL_CBWR");
  if (given != nullptr && std::string(given).find("STRICT") == std::string::npos) {
    throw UserError({std::string("--deterministic-mode: the environment has MKL_CBWR=") + given,
                     "without STRICT, GEMM results depend on the number of threads",
                     "unset it, or add ,STRICT"});
  }
  setenv("MKL_CBWR", kernels::cpu_has_avx512() ? "AVX512,STRICT" : "AVX2,STRICT", 0);
}

}  // namespace

void set_determinism(const TrainingConfig& config) {
  at::globalContext().setDeterministicAlgorithms(config.deterministic_mode, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  if (!config.deterministic_mode) return;
  fix_mkl();
  require_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8",
                   "cuBLAS then chooses its order of additions as it goes");
}

}  // namespace megatron
