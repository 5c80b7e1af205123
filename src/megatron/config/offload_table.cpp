// Declares the flags by which optimizer state waits in another memory.
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<OffloadConfig>& offload_table() {
  using Config = OffloadConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Offload");
    t.field("offload_folder", &Config::offload_folder,
            "folder on a disk for what is offloaded; each rank keeps a file without a name there, "
            "which ends with the run; required on a CPU")
        .optional();
    t.field("optimizer_cpu_offload", &Config::optimizer_cpu_offload,
            "keep the optimizer's state and fp32 main weights in --offload-folder, or without one "
            "in the memory of a GPU's host, and bring them in piece by piece during the update");
    t.field("optimizer_offload_fraction", &Config::optimizer_offload_fraction,
            "share of the optimizer's state that is offloaded, in whole weights")
        .at_least(0)
        .at_most(1);
    t.field("overlap_cpu_optimizer_d2h_h2d", &Config::overlap_cpu_optimizer_d2h_h2d,
            "read the next piece of offloaded optimizer state while one is updated");
    return t;
  }();
  return table;
}

}  // namespace megatron
