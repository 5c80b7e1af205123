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

using S = const Settings&;

bool is_local(S s) { return s.checkpoint->non_persistent_ckpt_type == "local"; }

/// Returns whether the folder of non-persistent checkpoints is that of --save or --load. All but
/// the newest checkpoint of this folder are removed.
bool would_empty(S s, const std::string& folder) {
  const std::string non_persistent = non_persistent_folder(*s.checkpoint, s.checkpoint->save);
  return !folder.empty() && !non_persistent.empty() &&
         std::filesystem::weakly_canonical(folder) ==
             std::filesystem::weakly_canonical(non_persistent);
}

std::vector<Rule> non_persistent_rules() {
  return {
      {{"non_persistent_save_interval", "non_persistent_ckpt_type"},
       [](S s) {
         return s.checkpoint->non_persistent_save_interval &&
                s.checkpoint->non_persistent_ckpt_type.empty();
       },
       [](S) {
         return UserError::Parts{"--non-persistent-save-interval",
                                 "needs --non-persistent-ckpt-type",
                                 "add --non-persistent-ckpt-type global, or local with "
                                 "--non-persistent-local-ckpt-dir"};
       }},
      {{"non_persistent_ckpt_type", "non_persistent_local_ckpt_dir"},
       [](S s) { return is_local(s) && s.checkpoint->non_persistent_local_ckpt_dir.empty(); },
       [](S) {
         return UserError::Parts{
             "--non-persistent-ckpt-type local", "needs --non-persistent-local-ckpt-dir",
             "add --non-persistent-local-ckpt-dir with a folder on a disk of this host"};
       }},
      {{"non_persistent_global_ckpt_dir", "non_persistent_local_ckpt_dir", "save", "load"},
       [](S s) { return would_empty(s, s.checkpoint->save) || would_empty(s, s.checkpoint->load); },
       [](S s) {
         return UserError::Parts{
             is_local(s) ? "--non-persistent-local-ckpt-dir" : "--non-persistent-global-ckpt-dir",
             "is the folder of --save or --load, whose checkpoints would be removed",
             "use a separate folder"};
       }},
  };
}

std::vector<Rule> replication_rules() {
  return {
      {{"replication", "non_persistent_ckpt_type", "non_persistent_save_interval"},
       [](S s) {
         return s.checkpoint->replication &&
                (!is_local(s) || !s.checkpoint->non_persistent_save_interval);
       },
       [](S) {
         return UserError::Parts{
             "--replication", "copies local checkpoints, and the run saves none",
             "add --non-persistent-save-interval N --non-persistent-ckpt-type local "
             "--non-persistent-local-ckpt-dir DIR, or leave it out"};
       }},
      {{"replication_jump", "replication_factor", "replication"},
       [](S s) {
         const CheckpointConfig& c = *s.checkpoint;
         return !c.replication && (c.replication_jump || c.replication_factor != 2);
       },
       [](S s) {
         return UserError::Parts{
             s.checkpoint->replication_jump ? "--replication-jump" : "--replication-factor",
             "needs --replication", "add --replication, or leave it out"};
       }},
  };
}

std::vector<Rule> retain_rules() {
  return {
      {{"save_retain_interval", "save_interval"},
       [](S s) {
         return s.checkpoint->save_retain_interval && !s.checkpoint->save.empty() &&
                !s.checkpoint->save_interval;
       },
       [](S) {
         return UserError::Parts{"--save-retain-interval", "needs --save-interval",
                                 "add --save-interval N, of which it is a multiple"};
       }},
      {{"save_retain_interval", "save_interval"},
       [](S s) {
         const CheckpointConfig& c = *s.checkpoint;
         return c.save_retain_interval && c.save_interval &&
                *c.save_retain_interval % *c.save_interval != 0;
       },
       [](S s) {
         return UserError::Parts{"--save-retain-interval",
                                 text_of(*s.checkpoint->save_retain_interval) +
                                     " is no multiple of --save-interval " +
                                     text_of(*s.checkpoint->save_interval),
                                 "choose a multiple, so that the checkpoints to keep exist"};
       }},
  };
}

std::vector<Rule> upcycling_rules() {
  return {
      {{"moe_use_upcycling", "load", "save"},
       [](S s) {
         return s.model->moe.use_upcycling &&
                (s.checkpoint->load.empty() || s.checkpoint->save.empty());
       },
       [](S s) {
         const bool loads = !s.checkpoint->load.empty();
         return UserError::Parts{"--moe-use-upcycling",
                                 std::string("needs ") + (loads ? "--save" : "--load"),
                                 loads ? "add --save DIR, a new folder for the model with experts"
                                       : "add --load DIR, the folder of the dense model"};
       }},
      {{"moe_use_upcycling"},
       [](S s) {
         return s.model->moe.use_upcycling && s.model->moe.num_experts == 0 &&
                !s.checkpoint->load.empty();
       },
       [](S) {
         return UserError::Parts{"--moe-use-upcycling", "needs --num-experts",
                                 "add --num-experts N, the number of experts to make"};
       }},
      {{"moe_use_upcycling", "skip_train"},
       [](S s) { return s.model->moe.use_upcycling && s.training->skip_train; },
       [](S) {
         return UserError::Parts{"--moe-use-upcycling",
                                 "excludes --skip-train, which writes nothing",
                                 "leave one of them out"};
       }},
      {{"moe_upcycling_granularity", "moe_use_upcycling"},
       [](S s) { return s.model->moe.upcycling_granularity > 1 && !s.model->moe.use_upcycling; },
       [](S) {
         return UserError::Parts{"--moe-upcycling-granularity", "needs --moe-use-upcycling",
                                 "add --moe-use-upcycling, or leave it out"};
       }},
  };
}

}  // namespace

const std::vector<Rule>& checkpoint_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = retain_rules();
    for (const Rule& rule : non_persistent_rules()) all.push_back(rule);
    for (const Rule& rule : replication_rules()) all.push_back(rule);
    for (const Rule& rule : upcycling_rules()) all.push_back(rule);
    all.push_back({{"finetune", "load"},
                   [](S s) { return s.checkpoint->finetune && s.checkpoint->load.empty(); },
                   [](S) {
                     return UserError::Parts{"--finetune", "needs the weights to start from",
                                             "add --load DIR, or leave --finetune out"};
                   }});
    return all;
  }();
  return rules;
}

}  // namespace megatron
