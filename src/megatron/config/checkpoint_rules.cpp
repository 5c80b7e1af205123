// Rules on saving, keeping and loading checkpoints.
#include <filesystem>

#include "megatron/config/checkpoint_folders.h"
#include "megatron/config/rule.h"

namespace megatron {
namespace {

using S = const Settings&;

bool is_local(S s) { return s.checkpoint.non_persistent_ckpt_type == "local"; }

/// Returns whether the folder of non-persistent checkpoints is that of --save or --load. All but
/// the newest checkpoint of this folder are removed.
bool would_empty(S s, const std::string& folder) {
  const std::string non_persistent = non_persistent_folder(s.checkpoint, s.checkpoint.save);
  return !folder.empty() && !non_persistent.empty() &&
         std::filesystem::weakly_canonical(folder) ==
             std::filesystem::weakly_canonical(non_persistent);
}

std::vector<Rule> non_persistent_rules() {
  return {
      {{"non_persistent_save_interval", "non_persistent_ckpt_type"},
       [](S s) {
         return s.checkpoint.non_persistent_save_interval &&
                s.checkpoint.non_persistent_ckpt_type.empty();
       },
       [](S) {
         return UserError::Parts{"--non-persistent-save-interval",
                                 "needs --non-persistent-ckpt-type",
                                 "add --non-persistent-ckpt-type global, or local with "
                                 "--non-persistent-local-ckpt-dir"};
       }},
      {{"non_persistent_ckpt_type", "non_persistent_local_ckpt_dir"},
       [](S s) { return is_local(s) && s.checkpoint.non_persistent_local_ckpt_dir.empty(); },
       [](S) {
         return UserError::Parts{
             "--non-persistent-ckpt-type local", "needs --non-persistent-local-ckpt-dir",
             "add --non-persistent-local-ckpt-dir with a folder on a disk of this host"};
       }},
      {{"non_persistent_global_ckpt_dir", "non_persistent_local_ckpt_dir", "save", "load"},
       [](S s) { return would_empty(s, s.checkpoint.save) || would_empty(s, s.checkpoint.load); },
       [](S s) {
         return UserError::Parts{
             is_local(s) ? "--non-persistent-local-ckpt-dir" : "--non-persistent-global-ckpt-dir",
             "is the folder of --save or --load, whose checkpoints would be removed",
             "use a separate folder"};
       }},
  };
}

std::vector<Rule> retain_rules() {
  return {
      {{"save_retain_interval", "save_interval"},
       [](S s) {
         return s.checkpoint.save_retain_interval && !s.checkpoint.save.empty() &&
                !s.checkpoint.save_interval;
       },
       [](S) {
         return UserError::Parts{"--save-retain-interval", "needs --save-interval",
                                 "add --save-interval N, of which it is a multiple"};
       }},
      {{"save_retain_interval", "save_interval"},
       [](S s) {
         const CheckpointConfig& c = s.checkpoint;
         return c.save_retain_interval && c.save_interval &&
                *c.save_retain_interval % *c.save_interval != 0;
       },
       [](S s) {
         return UserError::Parts{"--save-retain-interval",
                                 text_of(*s.checkpoint.save_retain_interval) +
                                     " is no multiple of --save-interval " +
                                     text_of(*s.checkpoint.save_interval),
                                 "choose a multiple, so that the checkpoints to keep exist"};
       }},
  };
}

}  // namespace

const std::vector<Rule>& checkpoint_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = retain_rules();
    for (const Rule& rule : non_persistent_rules()) all.push_back(rule);
    all.push_back({{"finetune", "load"},
                   [](S s) { return s.checkpoint.finetune && s.checkpoint.load.empty(); },
                   [](S) {
                     return UserError::Parts{"--finetune", "needs the weights to start from",
                                             "add --load DIR, or leave --finetune out"};
                   }});
    return all;
  }();
  return rules;
}

}  // namespace megatron
