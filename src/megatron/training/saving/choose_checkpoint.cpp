#include "megatron/training/saving/choose_checkpoint.h"

#include <algorithm>
#include <ostream>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/local_checkpoint.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/problems.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/saving/check_save_folders.h"

namespace megatron {
namespace {

constexpr char kMegatron = 'm', kHuggingFace = 'h', kLocal = 'l';

bool may_use_local(const CheckpointConfig& config) {
  return config.non_persistent_ckpt_type == "local" && !config.ckpt_step;
}

/// Returns the newest local checkpoint that is complete and newer than the persistent one, which
/// rank 0 finds as `lasting`. Collective over rank.world.
std::optional<LocalChoice> find_local(const CheckpointConfig& config, const Rank& rank,
                                      std::optional<CheckpointSource>& lasting, std::ostream& out) {
  if (!may_use_local(config)) return std::nullopt;
  const std::string iteration = CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    lasting = find_checkpoint(config.load);
    return std::to_string(lasting ? lasting->iteration : 0);
  });
  return choose_local_checkpoint(
      {.root = config.non_persistent_local_ckpt_dir,
       .first_iteration = std::stoll(iteration) + 1,
       .is_own = [&config](const Manifest& manifest) { return is_of_run(manifest, config); },
       .world = rank.world,
       .device = rank.device},
      out);
}

CheckpointSource open_local(const fs::path& folder) {
  CheckpointSource source = open_checkpoint(folder, CheckpointSource::Kind::megatron);
  source.is_local = true;
  return source;
}

/// Returns the non-persistent checkpoint to use instead of `lasting`, if it is newer. At equal
/// iterations only the persistent one may hold the state of a step that is to be rerun.
/// --ckpt-step always selects a persistent one.
std::optional<CheckpointSource> find_non_persistent(const CheckpointConfig& config,
                                                    const std::optional<CheckpointSource>& lasting,
                                                    const std::optional<LocalChoice>& local,
                                                    std::ostream& out) {
  const std::string folder = non_persistent_folder(config, config.load);
  if (folder.empty() || config.ckpt_step) return std::nullopt;
  std::optional<CheckpointSource> recent;
  if (local) {
    recent = open_local(local->folder);
  } else if (!may_use_local(config)) {
    recent = find_checkpoint(folder, std::nullopt, "");
  }
  if (!recent) {
    const bool seeks_newer = may_use_local(config) && lasting;
    out << (seeks_newer ? "WARNING: found no usable local checkpoint in " + folder +
                              " that is newer than the persistent one\n"
                        : "WARNING: could not find the metadata file " + folder +
                              "/latest_checkpointed_iteration.txt\n")
        << "    will not load any non-persistent checkpoint" << std::endl;
    return std::nullopt;
  }
  if (lasting && lasting->iteration >= recent->iteration) {
    if (lasting->iteration > recent->iteration)
      out << "WARNING: non-persistent checkpoints are older than persistent checkpoint"
          << std::endl;
    return std::nullopt;
  }
  out << "Loading from a non-persistent checkpoint (non-persistent iter " << recent->iteration
      << ')' << std::endl;
  return recent;
}

/// Returns the sibling folder of `path` with the most similar name; "" when none is similar.
std::string nearest_sibling(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path named = whole.has_filename() ? whole : whole.parent_path();
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(named.parent_path(), unreadable)) {
    if (entry.is_directory(unreadable) && entry.path() != named)
      names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  const std::string nearest = nearest_name(named.filename().string(), names);
  return nearest.empty() ? "" : (named.parent_path() / nearest).string();
}

/// Throws for a run that must not start from random weights because of `flag`, or because it names
/// pretrained ones.
[[noreturn]] void refuse_missing(const CheckpointConfig& config, const std::string& flag) {
  const bool is_there = fs::exists(config.load),
             is_own = config.load != config.pretrained_checkpoint;
  const std::string nearest = is_there ? "" : nearest_sibling(config.load);
  throw UserError({(is_own ? "--load " : "--pretrained-checkpoint ") + config.load,
                   std::string(is_there ? "holds no checkpoint" : "does not exist") +
                       (is_own ? ", and " + flag + " is given" : "") + "; looked for " +
                       kTrackerFile + ", iter_ folders, and a config.json with safetensors",
                   nearest.empty() ? "check the path" : "did you mean " + nearest + "?"});
}

/// Completes the search in which `source` is the persistent checkpoint, if there is one.
std::optional<CheckpointSource> search(const CheckpointConfig& config,
                                       std::optional<CheckpointSource> source,
                                       const std::optional<LocalChoice>& local,
                                       const std::string& needed_by, StartupWarnings& warnings,
                                       std::ostream& out) {
  if (auto recent = find_non_persistent(config, source, local, out)) source = std::move(recent);
  if (source) {
    for (const std::string& note : source->notes) out << "note: " << note << std::endl;
    return source;
  }
  if (!needed_by.empty()) refuse_missing(config, needed_by);
  if (config.finetune) refuse_missing(config, "--finetune");
  if (config.exit_on_missing_checkpoint) refuse_missing(config, "--exit-on-missing-checkpoint");
  warnings.add("could not find the metadata file " + config.load +
                   "/latest_checkpointed_iteration.txt\n" +
                   "    will not load any checkpoints and will start from random",
               out);
  return source;
}

constexpr std::size_t kIdentityDigits = 16;

std::string encode(const CheckpointSource& source) {
  const char kind = source.is_local                                   ? kLocal
                    : source.kind == CheckpointSource::Kind::megatron ? kMegatron
                                                                      : kHuggingFace;
  return kind + checksum_hex(source.identity) + source.folder.string();
}

CheckpointSource open_decoded(const std::string& text) {
  const fs::path folder = text.substr(1 + kIdentityDigits);
  CheckpointSource source =
      text.front() == kLocal ? open_local(folder)
                             : open_checkpoint(folder, text.front() == kMegatron
                                                           ? CheckpointSource::Kind::megatron
                                                           : CheckpointSource::Kind::hugging_face);
  require_same_checkpoint(source, std::stoull(text.substr(1, kIdentityDigits), nullptr, 16));
  return source;
}

}  // namespace

void require_same_checkpoint(const CheckpointSource& source, std::uint64_t chosen) {
  if (source.identity == chosen) return;
  throw UserError({"--load: " + source.folder.string(),
                   "is another checkpoint than rank 0 found there: its description has the "
                   "checksum " +
                       checksum_hex(source.identity) + ", rank 0's " + checksum_hex(chosen),
                   "give a folder that all hosts share, or equal copies of it"});
}

std::optional<CheckpointSource> choose_checkpoint(const CheckpointConfig& config, const Rank& rank,
                                                  StartupWarnings& warnings, std::ostream& out,
                                                  const std::string& needed_by) {
  std::optional<CheckpointSource> source;
  if (config.load.empty()) return source;
  const std::optional<LocalChoice> local = find_local(config, rank, source, out);
  const CollectiveSteps together(rank.world, rank.device);
  const std::string chosen = together.run_on_rank_0([&] {
    if (!source) source = find_checkpoint(config.load, config.ckpt_step);
    source = search(config, std::move(source), local, needed_by, warnings, out);
    return source ? encode(*source) : std::string();
  });
  if (chosen.empty()) return source;
  together.run_on_all_ranks([&] {
    if (!source) source = open_decoded(chosen);
    return std::string();
  });
  return source;
}

std::optional<UpcycleRequest> upcycle_request(const Settings& settings, const Rank& rank,
                                              const ModelFamilies& families,
                                              StartupWarnings& warnings, std::ostream& out) {
  const MoeConfig& moe = settings.model->moe;
  const std::string& save = settings.checkpoint->save;
  if (!moe.use_upcycling) return std::nullopt;
  CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    if (std::filesystem::exists(save) && find_checkpoint_folder(save, std::nullopt)) {
      throw UserError({"--save " + save,
                       "holds a checkpoint already, and --moe-use-upcycling is given",
                       "leave --moe-use-upcycling out and give --load " + save +
                           " to continue that run, or give another folder"});
    }
    return std::string();
  });
  if (moe.router_topk < moe.upcycling_granularity)
    warnings.add("--moe-router-topk " + std::to_string(moe.router_topk) +
                     " is less than --moe-upcycling-granularity " +
                     std::to_string(moe.upcycling_granularity) +
                     ": a token takes only some parts of the dense MLP, so the model starts worse "
                     "than the dense one",
                 out);
  return UpcycleRequest{.experts = moe,
                        .granularity = moe.upcycling_granularity,
                        .init_method_std = settings.model->init_method_std,
                        .seed = rank.seed,
                        .world = rank.world,
                        .device = rank.device,
                        .families = &families};
}

CheckpointSource upcycle(const CheckpointSource& source, const UpcycleRequest& request,
                         const std::string& save) {
  const std::filesystem::path folder = write_upcycled(source, request, save);
  return open_checkpoint(folder, CheckpointSource::Kind::megatron);
}

}  // namespace megatron
