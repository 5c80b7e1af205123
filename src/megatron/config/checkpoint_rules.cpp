// Rules on saving, keeping and loading checkpoints.
#include <filesystem>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/run_folders.h"
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

bool empties_another_folder(S s) {
  return would_empty(s, s.checkpoint->save) || would_empty(s, s.checkpoint->load);
}
Setting non_persistent_flag(S s) {
  return is_local(s) ? &Checkpoint::non_persistent_local_ckpt_dir
                     : Setting(&Checkpoint::non_persistent_global_ckpt_dir);
}

Rules saving_rules() {
  return {
      when(&Checkpoint::save, needs(&Checkpoint::save_retain_interval, &Checkpoint::save_interval,
                                    {.why = ", of which it is a multiple"})),
      divides(&Checkpoint::save_interval, &Checkpoint::save_retain_interval,
              {.fix = "choose a multiple, so that the checkpoints to keep exist"}),
      needs(&Checkpoint::non_persistent_save_interval, &Checkpoint::non_persistent_ckpt_type,
            {.fix = {"add ", &Checkpoint::non_persistent_ckpt_type, " global, or local with ",
                     &Checkpoint::non_persistent_local_ckpt_dir}}),
      needs(is(&Checkpoint::non_persistent_ckpt_type, "local"),
            &Checkpoint::non_persistent_local_ckpt_dir, {.why = ", a folder of this host"}),
      rule(empties_another_folder, {non_persistent_flag,
                                    {"is the folder of ", &Checkpoint::save, " or ",
                                     &Checkpoint::load, ", whose checkpoints would be removed"},
                                    "use a separate folder"}),
      refuse({&Checkpoint::replication, without(is_local)},
             "copies local checkpoints, and the run saves none",
             {"add ", to_add(&Checkpoint::non_persistent_save_interval), " ",
              &Checkpoint::non_persistent_ckpt_type, " local ",
              to_add(&Checkpoint::non_persistent_local_ckpt_dir), ", or leave it out"}),
      when(is_local, tunes({&Checkpoint::replication}, &Checkpoint::non_persistent_save_interval)),
      tunes({&Checkpoint::replication_jump, &Checkpoint::replication_factor},
            &Checkpoint::replication),
  };
}

Rules upcycling_rules() {
  const Condition upcycling = &Moe::use_upcycling;
  return {
      needs(upcycling, &Checkpoint::load, {.why = ", the folder of the dense model"}),
      when(&Checkpoint::load, {needs(upcycling, &Checkpoint::save,
                                     {.why = ", a new folder for the model with experts"}),
                               needs(upcycling, &Moe::num_experts)}),
      excludes(upcycling, &Training::skip_train, {.why = ", which writes nothing"}),
      tunes({&Moe::upcycling_granularity}, upcycling),
  };
}

}  // namespace

const Rules& checkpoint_rules() {
  static const Rules rules = {
      saving_rules(), upcycling_rules(),
      tunes({&Checkpoint::finetune, &Checkpoint::ckpt_step, &Checkpoint::exit_on_missing_checkpoint,
             &Checkpoint::load_optim},
            &Checkpoint::load),
      note({any({&Checkpoint::save_rng, &Checkpoint::load_rng})},
           "without effect: random numbers have no state that is saved or loaded")};
  return rules;
}

}  // namespace megatron
