// What fails in a cluster, how often, and how a run notices it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// How a run notices a failure. `announced`: it is told before, and saves.
enum class FailureSign : std::uint8_t { crash, hang, slowdown, corruption, announced };

/// Returns the name as a file has it, such as "crash"; failure_sign() is the inverse, and throws a
/// UserError that begins with `place` for other names.
const char* name_of(FailureSign sign);
FailureSign failure_sign(const std::string& name, const std::string& place);

struct FailureClass {
  std::string name;
  double count = 0;  ///< in the time and on the GPUs of the mix
  FailureSign sign = FailureSign::crash;
  double host_out_s = 0;  ///< until its host can be used again; 0 if only processes end
};

/// Failures as they were counted in one run. They happen independently, at a constant rate for each
/// GPU.
struct FailureMix {
  std::string name;
  double gpus = 1, seconds = 1;  ///< of the run in which they were counted
  std::vector<FailureClass> classes;

  /// Returns the failures per second of one GPU.
  double rate_of_gpu() const;
};

/// Returns the 419 unexpected and 47 planned interruptions of 54 days on 16,384 GPUs ("The Llama 3
/// Herd of Models", 2024, section 3.3.4 and table 5). The paper has the counts; how each class is
/// noticed and for how long it takes a host away is assumed here.
FailureMix llama3_failure_mix();

/// Reads {"gpus": N, "days": D, "classes": [{"name": …, "count": …, "sign": "crash", "host_hours":
/// …}]}. Throws a UserError that names the file and the class.
FailureMix read_failure_mix(const std::string& path);

}  // namespace megatron
