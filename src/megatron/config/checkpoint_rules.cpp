// Rules on saving, keeping and loading checkpoints.
#include <filesystem>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/checkpoint_folders.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
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

const Rules& retain_rules() {
  static const Rules rules = {
      when([](S s) { return !s.checkpoint->save.empty(); },
           needs(~save-retain-interval, ~save-interval, {.fix = W"add --save-interval N, of which it is a multiple"})),
      divides(~save-interval, ~save-retain-interval,
              {.fix = "choose a multiple, so that the checkpoints to keep exist"}),
  };
  return rules;
}

const Rules& non_persistent_rules() {
  static const Rules rules = {
      needs(~non-persistent-save-interval, ~non-persistent-ckpt-type,
            {.fix = W"add --non-persistent-ckpt-type global, or local with --non-persistent-local-ckpt-dir"}),
      needs(is(~non-persistent-ckpt-type, "local"), ~non-persistent-local-ckpt-dir,
            {.fix = W"add --non-persistent-local-ckpt-dir with a folder on a disk of this host"}),
      rule([](S s) { return would_empty(s, s.checkpoint->save) || would_empty(s, s.checkpoint->load); },
           [](S s) {
             return Message{is_local(s) ? ~non-persistent-local-ckpt-dir : Words(~non-persistent-global-ckpt-dir),
                            W"is the folder of --save or --load, whose checkpoints would be removed",
                            "use a separate folder"};
           }),
  };
  return rules;
}

const Rules& replication_rules() {
  static const Rules rules = {
      rule([](S s) {
             return s.checkpoint->replication && (!is_local(s) || !s.checkpoint->non_persistent_save_interval);
           },
           {W"--replication", "copies local checkpoints, and the run saves none",
            W"add --non-persistent-save-interval N --non-persistent-ckpt-type local "
             "--non-persistent-local-ckpt-dir DIR, or leave it out"}),
      rule([](S s) {
             const CheckpointConfig& c = *s.checkpoint;
             return !c.replication && (c.replication_jump || c.replication_factor != 2);
           },
           [](S s) {
             return Message{s.checkpoint->replication_jump ? ~replication-jump : Words(~replication-factor),
                            W"needs --replication", W"add --replication, or leave it out"};
           }),
  };
  return rules;
}

const Rules& upcycling_rules() {
  static const Rules rules = {
      rule([](S s) { return s.checkpoint->load.empty(); },
           {W"--moe-use-upcycling", W"needs --load", W"add --load DIR, the folder of the dense model"}),
      rule([](S s) { return !s.checkpoint->load.empty() && s.checkpoint->save.empty(); },
           {W"--moe-use-upcycling", W"needs --save", W"add --save DIR, a new folder for the model with experts"}),
      rule([](S s) { return s.model->moe.num_experts == 0 && !s.checkpoint->load.empty(); },
           {W"--moe-use-upcycling", W"needs --num-experts", W"add --num-experts N, the number of experts to make"}),
      excludes(~moe-use-upcycling, ~skip-train,
               {.why = ", which writes nothing", .fix = "leave one of them out"}),
  };
  return rules;
}

}  // namespace

const Rules& checkpoint_rules() {
  static const Rules rules = {
      retain_rules(), non_persistent_rules(), replication_rules(),
      when([](S s) { return s.model->moe.use_upcycling; }, upcycling_rules()),
      needs(~moe-upcycling-granularity, ~moe-use-upcycling, {.fix = W"add --moe-use-upcycling, or leave it out"}),
      rule([](S s) { return s.checkpoint->finetune && s.checkpoint->load.empty(); },
           {W"--finetune", "needs the weights to start from", W"add --load DIR, or leave --finetune out"}),
  };
  return rules;
}

}  // namespace megatron
