// Rules on the optimizer and on the offload of its state.
#include "megatron/config/rule.h"

namespace megatron {
namespace {

using S = const Settings&;

const OffloadConfig& offload(S s) { return s.memory.offload; }

UserError::Parts needs_offload(const std::string& flag) {
  return {flag, "has no effect without --optimizer-cpu-offload",
          "add --optimizer-cpu-offload, or leave " + flag + " out"};
}

}  // namespace

const std::vector<Rule>& optimizer_settings_rules() {
  static const std::vector<Rule> rules = {
      {{"optimizer_cpu_offload", "optimizer_offload_fraction"},
       [](S s) {
         return offload(s).optimizer_offload_fraction != 1 && !offload(s).optimizer_cpu_offload;
       },
       [](S) { return needs_offload("--optimizer-offload-fraction"); }},
      {{"optimizer_cpu_offload", "overlap_cpu_optimizer_d2h_h2d"},
       [](S s) {
         return offload(s).overlap_cpu_optimizer_d2h_h2d && !offload(s).optimizer_cpu_offload;
       },
       [](S) { return needs_offload("--overlap-cpu-optimizer-d2h-h2d"); }},
  };
  return rules;
}

}  // namespace megatron
