#include "megatron/training/used_folder.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/config/checkpoint_folders.h"

namespace megatron {
namespace {

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code code;
  if (fs::equivalent(a, b, code)) return true;
  return fs::weakly_canonical(a) == fs::weakly_canonical(b);
}

/// Whether `source` lies in `root`, or is `root`.
bool lies_in(const CheckpointSource& source, const fs::path& root) {
  return is_same_folder(source.folder, root) || is_same_folder(source.folder.parent_path(), root);
}

bool begins_anew(const CheckpointConfig& config, const CheckpointSource& source) {
  return config.finetune || source.is_release;
}

/// What lies below `root`, nothing when there is no checkpoint.
struct Contents {
  std::vector<std::int64_t> iterations;
  std::optional<Tracked> tracked;
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

[[noreturn]] void refuse_other_run(const std::string& flag, const std::string& folder,
                                   const Contents& contents) {
  throw UserError(
      {flag + " " + folder + " is in use",
       "it holds " + up_to(contents.latest()) + " of another run, which this one would replace",
       "--load " + folder + " to continue that run, or another " + flag + " folder"});
}

[[noreturn]] void refuse_new_start(const CheckpointConfig& config, const Contents& contents) {
  throw UserError({"--save " + config.save + " is the folder that is loaded from",
                   "it holds " + up_to(contents.latest()) +
                       ", which a run that counts from iteration 0 would replace",
                   std::string("give another --save folder") +
                       (config.finetune ? ", or leave --finetune out to continue that run" : "")});
}

[[noreturn]] void refuse_step_back(const CheckpointConfig& config, std::int64_t iteration,
                                   const Contents& contents) {
  throw UserError(
      {"--save " + config.save + " holds " + up_to(contents.latest()),
       "this run goes back to iteration " + std::to_string(iteration) +
           " and would replace the later ones",
       "give another --save folder, or leave --ckpt-step out to continue from the latest"});
}

void check_save_folder(const CheckpointConfig& config,
                       const std::optional<CheckpointSource>& source, StartWarnings& warnings,
                       std::ostream& out) {
  const Contents contents = contents_of(config.save);
  if (contents.is_empty()) return;
  if (!source || (!is_same_folder(config.load, config.save) && !lies_in(*source, config.save)))
    refuse_other_run("--save", config.save, contents);
  if (begins_anew(config, *source)) {
    if (!contents.iterations.empty()) refuse_new_start(config, contents);
    return;
  }
  if (contents.tracked_iteration() > source->iteration)
    refuse_step_back(config, source->iteration, contents);
  if (!contents.iterations.empty() && contents.iterations.back() > source->iteration)
    warnings.add(config.save + " holds checkpoints up to iteration " +
                     std::to_string(contents.iterations.back()) + ", but " + kTrackerFile +
                     " names iteration " + std::to_string(source->iteration) +
                     ": this run continues there and replaces the later ones",
                 out);
}

/// Of non-persistent checkpoints only the newest stays, so one that this run does not know would
/// go.
void check_non_persistent_folder(const CheckpointConfig& config,
                                 const std::optional<CheckpointSource>& source) {
  const std::string folder =
      config.non_persistent_save_interval ? non_persistent_folder(config, config.save) : "";
  if (folder.empty() || continues_saved_run(config, source) || (source && lies_in(*source, folder)))
    return;
  if (const Contents contents = contents_of(folder); !contents.is_empty())
    throw UserError(
        {"the folder of non-persistent checkpoints, " + folder + ", is in use",
         "it holds " + up_to(contents.latest()) + " of another run, which this one would remove",
         "give another folder, or remove that one"});
}

}  // namespace

bool continues_saved_run(const CheckpointConfig& config,
                         const std::optional<CheckpointSource>& source) {
  if (!source || config.save.empty() || begins_anew(config, *source)) return false;
  return is_same_folder(config.load, config.save) || lies_in(*source, config.save);
}

void check_used_folders(const CheckpointConfig& config,
                        const std::optional<CheckpointSource>& source, StartWarnings& warnings,
                        std::ostream& out) {
  if (config.save.empty()) return;
  check_save_folder(config, source, warnings, out);
  check_non_persistent_folder(config, source);
}

}  // namespace megatron
