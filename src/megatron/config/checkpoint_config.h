// The settings of what is saved, kept and loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

struct CheckpointConfig {
  std::string save, load;
  std::string pretrained_checkpoint;  ///< weights of a new run, if `load` holds none
  std::optional<std::int64_t> save_interval;
  /// Older checkpoints are kept only at multiples of this iteration.
  std::optional<std::int64_t> save_retain_interval;
  std::optional<std::int64_t> non_persistent_save_interval;
  std::string non_persistent_ckpt_type, non_persistent_global_ckpt_dir,
      non_persistent_local_ckpt_dir;
  bool replication = false;
  /// Distance of the ranks that keep copies of each other's shards; none: the ranks of a host.
  std::optional<std::int64_t> replication_jump;
  std::int64_t replication_factor = 2;
  std::optional<std::int64_t> ckpt_step;
  bool async_save = false;  ///< a thread writes while training goes on
  bool finetune = false;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  bool save_optim = true, save_rng = true, load_optim = true, load_rng = true;
  std::string ckpt_format = "torch_dist";
};

}  // namespace megatron
