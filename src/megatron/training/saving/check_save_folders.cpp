#include "megatron/training/saving/check_save_folders.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/run_folders.h"

namespace megatron {
namespace {

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code code;
  if (fs::equivalent(a, b, code)) return true;
  return fs::weakly_canonical(a) == fs::weakly_canonical(b);
}

/// Returns whether `source` is `root` or lies below it.
bool lies_in(const CheckpointSource& source, const fs::path& root) {
  return is_same_folder(source.folder, root) || is_same_folder(source.folder.parent_path(), root);
}

bool starts_from_scratch(const CheckpointConfig& config, const CheckpointSource& source) {
  return config.finetune || source.is_release;
}

/// The checkpoints in a folder; empty when there are none.
struct Contents {
  std::vector<std::int64_t> iterations;
  std::optional<TrackerContent> tracked;
  bool is_empty() const { return iterations.empty() && !tracked; }
  std::int64_t latest() const {
    return std::max(iterations.empty() ? 0 : iterations.back(), tracked_iteration());
  }
  std::int64_t tracked_iteration() const { return tracked ? tracked->iteration.value_or(0) : 0; }
};

Contents contents_of(const fs::path& root) {
  if (!fs::is_directory(root)) return {};
  return {.iterations = committed_iterations(root), .tracked = read_tracker(root)};
}

std::string up_to(std::int64_t iteration) {
  return iteration == 0 ? "a release checkpoint"
                        : "checkpoints up to iteration " + std::to_string(iteration);
}

std::string without_finetune(const CheckpointConfig& config) {
  return config.finetune ? " and without --finetune" : "";
}

[[noreturn]] void refuse_other_run(const CheckpointConfig& config, const Contents& contents,
                                   const RestartCounts& restarts) {
  const std::string restarted =
      restarts.count == 0 ? ""
                          : "; this is restart " + std::to_string(restarts.count) +
                                ", which continues only with --load of its own --save folder";
  throw UserError({"--save " + config.save + " is in use",
                   "it holds " + up_to(contents.latest()) +
                       ", which this run does not continue, and would replace" + restarted,
                   "--load " + config.save + without_finetune(config) +
                       " to continue from there, or another --save folder"});
}

[[noreturn]] void refuse_new_start(const CheckpointConfig& config, const Contents& contents) {
  throw UserError({"--save " + config.save + " is the folder that is loaded from",
                   "it holds " + up_to(contents.latest()) +
                       ", which a run that counts from iteration 0 would replace",
                   std::string("give another --save folder") +
                       (config.finetune ? ", or leave --finetune out to continue that run" : "")});
}

/// Returns the flag change that selects the latest checkpoint instead of the requested earlier one.
std::string how_to_resume_latest(const CheckpointConfig& config) {
  return config.ckpt_step ? "leave --ckpt-step out" : "give --load " + config.save;
}

[[noreturn]] void refuse_step_back(const CheckpointConfig& config, std::int64_t iteration,
                                   const Contents& contents) {
  throw UserError({"--save " + config.save + " holds " + up_to(contents.latest()),
                   "this run goes back to iteration " + std::to_string(iteration) +
                       " and would replace the later ones",
                   "give another --save folder, or " + how_to_resume_latest(config) +
                       " to continue from the latest"});
}

void warn_of_later(const std::string& folder, const Contents& contents, std::int64_t iteration,
                   StartupWarnings& warnings, std::ostream& out) {
  if (contents.iterations.empty() || contents.iterations.back() <= iteration) return;
  warnings.add(folder + " holds checkpoints up to iteration " +
                   std::to_string(contents.iterations.back()) + ", but " + kTrackerFile +
                   " names iteration " + std::to_string(iteration) +
                   ": this run continues there and replaces the later ones",
               out);
}

/// Warns about restarts: they use the same flags and find the checkpoints that the run has saved by
/// then.
void warn_of_restarts(const CheckpointConfig& config, const RestartCounts& restarts,
                      StartupWarnings& warnings, std::ostream& out) {
  if (restarts.count >= restarts.max) return;
  warnings.add("the launcher restarts this run after a failure, but " +
                   (config.load.empty() ? std::string("--load is not given")
                                        : "--load " + config.load + " is not the --save folder") +
                   ": once " + config.save +
                   " holds a checkpoint, a restart is refused. Start the run again with --load " +
                   config.save + without_finetune(config) + " then",
               out);
}

void check_save_folder(const CheckpointConfig& config,
                       const std::optional<CheckpointSource>& source, const RestartCounts& restarts,
                       StartupWarnings& warnings, std::ostream& out) {
  if (const auto foreign = find_foreign_checkpoint(config.save))
    throw UserError({"--save " + config.save + " holds checkpoints of Megatron-LM or DeepSpeed",
                     foreign->string(), "give --save a folder of its own, and keep --load"});
  const Contents contents = contents_of(config.save);
  const bool loads_own = is_same_folder(config.load, config.save);
  if (contents.is_empty()) {
    if (!loads_own || config.finetune) warn_of_restarts(config, restarts, warnings, out);
    return;
  }
  if (!source || (!loads_own && !lies_in(*source, config.save)))
    refuse_other_run(config, contents, restarts);
  if (starts_from_scratch(config, *source)) {
    if (!contents.iterations.empty()) refuse_new_start(config, contents);
    if (!loads_own) warn_of_restarts(config, restarts, warnings, out);
    return;
  }
  if (contents.tracked_iteration() > source->iteration)
    refuse_step_back(config, source->iteration, contents);
  warn_of_later(config.save, contents, source->iteration, warnings, out);
}

bool is_local(const CheckpointConfig& config) { return config.non_persistent_ckpt_type == "local"; }

/// Returns whether a checkpoint in `root` names another --save folder than this run.
bool holds_another_run(const fs::path& root, const CheckpointConfig& config) {
  return std::ranges::any_of(all_checkpoint_folders(root), [&](const fs::path& folder) {
    try {
      return !is_of_run(read_manifest(folder), config);
    } catch (const UserError&) {  // damaged: no run continues it
      return false;
    }
  });
}

}  // namespace

bool continues_saved_run(const CheckpointConfig& config,
                         const std::optional<CheckpointSource>& source) {
  if (!source || config.save.empty() || starts_from_scratch(config, *source)) return false;
  return is_same_folder(config.load, config.save) || lies_in(*source, config.save);
}

void check_non_persistent_folder(const CheckpointConfig& config,
                                 const std::optional<CheckpointSource>& source,
                                 const RestartCounts& restarts, StartupWarnings& warnings,
                                 std::ostream& out) {
  const std::string folder =
      config.non_persistent_save_interval ? non_persistent_folder(config, config.save) : "";
  if (folder.empty()) return;
  const Contents contents = contents_of(folder);
  if (contents.is_empty()) return;
  const std::string place = "the folder of non-persistent checkpoints, " + folder + ", ";
  const bool is_foreign = is_local(config) && holds_another_run(folder, config);
  if (is_foreign && restarts.count > 0)
    return warnings.add(place + "of host " + host_name() +
                            " holds checkpoints of another run, which the next save removes",
                        out);
  const bool goes_on = source && !starts_from_scratch(config, *source) && lies_in(*source, folder);
  if (is_foreign || (!goes_on && !continues_saved_run(config, source)))
    throw UserError({place + "is in use",
                     "it holds " + up_to(contents.latest()) +
                         ", which this run does not continue, and would remove",
                     "give another folder, or remove that one"});
  // A later local one was found incomplete, unless --ckpt-step asked for an earlier one.
  const bool may_be_incomplete = is_local(config) && !config.ckpt_step;
  if (!may_be_incomplete && contents.tracked_iteration() > source->iteration)
    throw UserError({place + "holds " + up_to(contents.latest()),
                     "this run goes back to iteration " + std::to_string(source->iteration) +
                         " and would remove the later one",
                     how_to_resume_latest(config) +
                         " to continue from the latest, or give another folder, or remove that "
                         "one"});
  if (!may_be_incomplete) warn_of_later(folder, contents, source->iteration, warnings, out);
}

void check_save_folders(const CheckpointConfig& config,
                        const std::optional<CheckpointSource>& source,
                        const RestartCounts& restarts, StartupWarnings& warnings,
                        std::ostream& out) {
  if (config.save.empty()) return;
  check_save_folder(config, source, restarts, warnings, out);
  if (!is_local(config)) check_non_persistent_folder(config, source, restarts, warnings, out);
}

bool is_of_run(const Manifest& manifest, const CheckpointConfig& config) {
  const auto saved = manifest.settings->find("save");
  if (saved == manifest.settings->end() || !saved->is_string()) return false;
  const std::string there = saved->get<std::string>();
  return is_same_folder(there, config.load) ||
         (!config.save.empty() && is_same_folder(there, config.save));
}

}  // namespace megatron
