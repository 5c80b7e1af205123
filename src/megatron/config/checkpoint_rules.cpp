// Rules on saving, keeping and loading checkpoints.
#include <filesystem>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/checkpoint_folders.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

bool is_local(S s) { return s.checkpoint->non_persistent_ckpt_type == "local"; }

/// Returns whether the folder of non-persistent checkpoints is that of --save or --load. All but
/// the newest checkpoint of this folder are removed.
bool would_empty(S s, const std::string& folder) {
  const std::string non_persistent = non_persistent_folder(*s.checkpoint, s.checkpoint->save);
  return !folder.empty() && !non_persistent.empty() &&
         std::filesystem::weakly_canonical(folder) ==
             std::filesystem::weakly_canonical(non_persistent);
}

Rules retain_rules() {
  return {
      when([](S s) { return !s.checkpoint->save.empty(); },
           needs(&Checkpoint::save_retain_interval, &Checkpoint::save_interval,
                 {.fix = {"add ", &Checkpoint::save_interval, " N, of which it is a multiple"}})),
      divides(&Checkpoint::save_interval, &Checkpoint::save_retain_interval,
              {.fix = "choose a multiple, so that the checkpoints to keep exist"}),
  };
}

Rules non_persistent_rules() {
  return {
      needs(&Checkpoint::non_persistent_save_interval, &Checkpoint::non_persistent_ckpt_type,
            {.fix = {"add ", &Checkpoint::non_persistent_ckpt_type, " global, or local with ",
                     &Checkpoint::non_persistent_local_ckpt_dir}}),
      needs(is(&Checkpoint::non_persistent_ckpt_type, "local"),
            &Checkpoint::non_persistent_local_ckpt_dir,
            {.fix = {"add ", &Checkpoint::non_persistent_local_ckpt_dir,
                     " with a folder on a disk of this host"}}),
      rule(
          [](S s) {
            return would_empty(s, s.checkpoint->save) || would_empty(s, s.checkpoint->load);
          },
          [](S s) {
            return Message{is_local(s) ? &Checkpoint::non_persistent_local_ckpt_dir
                                       : Words(&Checkpoint::non_persistent_global_ckpt_dir),
                           {"is the folder of ", &Checkpoint::save, " or ", &Checkpoint::load,
                            ", whose checkpoints would be removed"},
                           "use a separate folder"};
          }),
  };
}

Rules replication_rules() {
  return {
      rule(
          [](S s) {
            return s.checkpoint->replication &&
                   (!is_local(s) || !s.checkpoint->non_persistent_save_interval);
          },
          {&Checkpoint::replication,
           "copies local checkpoints, and the run saves none",
           {"add ", &Checkpoint::non_persistent_save_interval, " N ",
            &Checkpoint::non_persistent_ckpt_type, " local ",
            &Checkpoint::non_persistent_local_ckpt_dir, " DIR, or leave it out"}}),
      needs(&Checkpoint::replication_jump, &Checkpoint::replication),
      needs(&Checkpoint::replication_factor, &Checkpoint::replication),
  };
}

Rules upcycling_rules() {
  return {
      needs(&Moe::use_upcycling, &Checkpoint::load,
            {.fix = {"add ", &Checkpoint::load, " DIR, the folder of the dense model"}}),
      refuse({&Moe::use_upcycling, &Checkpoint::load, without(&Checkpoint::save)},
             {"needs ", &Checkpoint::save},
             {"add ", &Checkpoint::save, " DIR, a new folder for the model with experts"}),
      refuse({&Moe::use_upcycling, &Checkpoint::load, without(&Moe::num_experts)},
             {"needs ", &Moe::num_experts},
             {"add ", &Moe::num_experts, " N, the number of experts to make"}),
      excludes(&Moe::use_upcycling, &Training::skip_train,
               {.why = ", which writes nothing", .fix = "leave one of them out"}),
      needs(&Moe::upcycling_granularity, &Moe::use_upcycling),
  };
}

}  // namespace

const Rules& checkpoint_rules() {
  static const Rules rules = {
      retain_rules(), non_persistent_rules(), replication_rules(), upcycling_rules(),
      refuse({&Checkpoint::finetune, without(&Checkpoint::load)}, "needs the weights to start from",
             {"add ", &Checkpoint::load, " DIR, or leave ", &Checkpoint::finetune, " out"})};
  return rules;
}

}  // namespace megatron
