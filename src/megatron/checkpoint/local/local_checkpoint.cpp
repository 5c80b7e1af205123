#include "megatron/checkpoint/local/local_checkpoint.h"

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/file_exchange.h"
#include "megatron/checkpoint/local/local_inventory.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/slice_math.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/params/param_store.h"

namespace megatron {
namespace {

/// Collects the files with the parts of global tensors that a rank's pieces cover.
class NeededFiles {
 public:
  explicit NeededFiles(const Manifest& manifest) : manifest_(manifest) {}

  /// Adds the files of the tensor that `prefix` and the parameter name, if there is one.
  void add(const std::string& prefix, const ParameterPiece& piece) {
    const auto tensor = manifest_.tensors.find(prefix + piece.parameter->name());
    if (tensor == manifest_.tensors.end()) return;
    for (const TensorSlice& slice : piece_slices(piece, piece.parameter->slices())) {
      const TensorSlice wanted = slice_at(slice.global_offset, slice.shape);
      for (const Piece& stored : tensor->second.pieces) {
        if (intersect(stored.slice, wanted)) files_.insert(stored.file);
      }
    }
  }
  std::set<std::string> take() { return std::move(files_); }

 private:
  const Manifest& manifest_;
  std::set<std::string> files_;
};

/// Returns the files with weights that `store` keeps, and with main weights and state that
/// `optimizer` keeps. `optimizer` may be null.
std::set<std::string> needed_files(const Manifest& manifest, const ParamStore& store,
                                   Optimizer* optimizer) {
  NeededFiles needed(manifest);
  for (const ParameterPiece& piece : store.kept_pieces()) needed.add("", piece);
  if (optimizer == nullptr) return needed.take();
  for (const ParameterPiece& piece : optimizer->main_parameters().pieces()) {
    needed.add("", piece);
    needed.add(kMainParameterPrefix, piece);
  }
  optimizer->list_state(
      [&](const ParameterPiece& piece, const std::string& state, at::ScalarType,
          const std::function<at::Tensor()>&) { needed.add(state + ".", piece); });
  return needed.take();
}

/// A damaged file keeps its bytes under this name and is no longer part of a checkpoint.
constexpr const char* kDamagedSuffix = ".damaged";

/// Steps that other ranks take with this one and wait for: none is left out after a UserError.
class MatchedSteps {
 public:
  template <class Step>
  void run(const Step& step) {
    try {
      step();
    } catch (const UserError& first) {
      if (!error_) error_ = first;
    }
  }
  /// Throws the first error.
  void end() const {
    if (error_) throw UserError(error_->parts());
  }

 private:
  std::optional<UserError> error_;
};

void send_description(Comm& comm, const fs::path& folder, std::int64_t to) {
  std::vector<std::string> auxiliary;
  MatchedSteps steps;
  steps.run([&] {
    for (const auto& [file, expected] : read_manifest(folder).files)
      auxiliary.push_back(fs::path(file).filename().string());
  });
  steps.run([&] {
    exchange_files(comm, FilesToSend{to, folder / kAuxiliaryFolder, auxiliary}, std::nullopt);
  });
  steps.run([&] { exchange_files(comm, FilesToSend{to, folder, {kManifestFile}}, std::nullopt); });
  steps.end();
}

/// Replaces `folder`, which is no part of the checkpoint that `from` has under this name.
void receive_description(Comm& comm, const fs::path& folder, std::int64_t from) {
  std::optional<PendingFolder> pending;
  MatchedSteps steps;
  fs::path place = folder / "missing";
  steps.run([&] {
    megatron::create_directories(folder.parent_path());
    place = pending.emplace(folder).path();
    megatron::create_directories(place / kAuxiliaryFolder);
  });
  steps.run([&] {
    exchange_files(comm, std::nullopt,
                   FilesToReceive{.from = from, .folder = place / kAuxiliaryFolder});
  });
  steps.run(
      [&] { exchange_files(comm, std::nullopt, FilesToReceive{.from = from, .folder = place}); });
  steps.end();
  pending->commit();
}

/// The collective search for a checkpoint that is complete over all folders.
class LocalSearcher {
 public:
  LocalSearcher(const LocalSearch& search, std::ostream& out)
      : search_(search),
        out_(out),
        steps_(search.world, search.device),
        owners_(find_folder_owners(search.root, search.world, search.device)) {}

  std::optional<LocalChoice> run() {
    for (const SpreadCheckpoint& spread : find_all()) {
      if (spread.iteration < search_.first_iteration) break;
      const std::string fault = spread.is_complete() ? verify(spread) : incompleteness(spread);
      if (fault.empty()) {
        complete_folders(spread);
        return LocalChoice{spread.iteration, spread.identity, folder_of(spread)};
      }
      if (steps_.rank() == 0)
        out_ << "WARNING: the local checkpoint of iteration " << spread.iteration
             << " cannot be used, an older one is looked for: " << fault << std::endl;
    }
    return std::nullopt;
  }

 private:
  fs::path folder_of(const SpreadCheckpoint& spread) const {
    return search_.root / iteration_folder(spread.iteration);
  }
  bool is_leader() const { return owners_.is_leader(steps_.rank()); }

  std::vector<SpreadCheckpoint> find_all() const {
    const std::vector<std::string> texts = steps_.run_on_all_ranks([&] {
      return is_leader() ? held_text(read_held_checkpoints(search_.root, search_.is_own))
                         : std::string("[]");
    });
    std::vector<std::vector<HeldCheckpoint>> held;
    for (const std::string& text : texts) held.push_back(parse_held(text));
    return spread_checkpoints(held);
  }

  std::string incompleteness(const SpreadCheckpoint& spread) const {
    return "the folders " + search_.root.string() + " of all hosts hold " +
           std::to_string(spread.holders.size()) + " of its " + std::to_string(spread.num_files) +
           " files";
  }

  /// Reads every file in every folder, each rank its share of a folder, and sets damaged ones
  /// aside. Returns why the checkpoint is no longer complete.
  std::string verify(const SpreadCheckpoint& spread) const {
    const std::vector<std::string> damaged =
        steps_.run_on_all_ranks([&] { return set_damaged_aside(spread); });
    std::map<std::string, std::vector<std::int64_t>> holders = spread.holders;
    std::string reasons;
    for (std::size_t rank = 0; rank < damaged.size(); ++rank) {
      const std::string& text = damaged[rank];
      for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
           begin = end + 1) {
        const std::size_t tab = text.find('\t', begin);
        const std::string file = text.substr(begin, tab - begin),
                          reason = text.substr(tab + 1, end - tab - 1);
        std::erase(holders[file], owners_.leader_of(static_cast<std::int64_t>(rank)));
        if (holders[file].empty()) {
          reasons += (reasons.empty() ? "" : "; ") + reason;
        } else if (steps_.rank() == 0) {
          out_ << "WARNING: a copy on another host replaces a damaged file: " << reason
               << std::endl;
        }
      }
    }
    return reasons;
  }

  /// Returns "name<tab>reason" for each damaged file of this rank's share.
  std::string set_damaged_aside(const SpreadCheckpoint& spread) const {
    const std::int64_t leader = owners_.leader_of(steps_.rank());
    const std::vector<std::int64_t> ranks = owners_.ranks_of(leader);
    const auto place =
        static_cast<std::size_t>(std::ranges::find(ranks, steps_.rank()) - ranks.begin());
    std::vector<std::string> mine;
    std::size_t index = 0;
    for (const auto& [file, leaders] : spread.holders) {
      if (std::ranges::count(leaders, leader) > 0 && index++ % ranks.size() == place)
        mine.push_back(file);
    }
    std::string text;
    if (mine.empty()) return text;
    for (auto& [name, reason] : find_damaged_files(folder_of(spread), mine)) {
      const fs::path path = folder_of(spread) / name;
      default_file_system().rename(path, path.string() + kDamagedSuffix);
      std::ranges::replace(reason, '\n', ' ');
      text += name + '\t' + reason + '\n';
    }
    return text;
  }

  /// Gives folders without this checkpoint its manifest and auxiliary files.
  void complete_folders(const SpreadCheckpoint& spread) const {
    const std::set<std::int64_t> all(owners_.leaders.begin(), owners_.leaders.end());
    steps_.run_on_all_ranks([&] {
      std::size_t turn = 0;
      MatchedSteps steps;
      for (const std::int64_t leader : all) {
        if (std::ranges::count(spread.leaders, leader) > 0) continue;
        const std::int64_t giver = spread.leaders[turn++ % spread.leaders.size()];
        steps.run([&] {
          if (steps_.rank() == giver)
            send_description(*search_.world.comm, folder_of(spread), leader);
          if (steps_.rank() == leader)
            receive_description(*search_.world.comm, folder_of(spread), giver);
        });
      }
      steps.end();
      return std::string();
    });
  }

  const LocalSearch& search_;
  std::ostream& out_;
  const CollectiveSteps steps_;
  const FolderOwners owners_;
};

/// What a rank has to do with the files of a checkpoint, each by its place in the manifest.
struct FilesOfRank {
  std::vector<std::size_t> lacking = {};  ///< needed by the rank, and not in its folder
  std::vector<std::size_t> held = {};     ///< in the folder of a leader
};

/// Returns the files of the manifest for whose names `is_wanted` holds.
template <class Predicate>
std::vector<std::size_t> find_files(const Manifest& manifest, const Predicate& is_wanted) {
  std::vector<std::size_t> found;
  std::size_t file = 0;
  for (const auto& [name, header] : manifest.headers) {
    if (is_wanted(name)) found.push_back(file);
    ++file;
  }
  return found;
}

/// Converts to and from the text that ranks exchange. Its length grows with the files of the rank,
/// and not with those of the checkpoint.
std::string text_of(const FilesOfRank& files) {
  return Json::array({files.lacking, files.held}).dump();
}

FilesOfRank parse_files(const std::string& text, std::size_t num_files) {
  const auto lists =
      parse_json(text, "list of shards").get<std::array<std::vector<std::size_t>, 2>>();
  for (const auto& list : lists) {
    for (const std::size_t file : list)
      MEGATRON_CHECK(file < num_files, "file ", file, " of a manifest of ", num_files, " files");
  }
  return {lists[0], lists[1]};
}

/// Makes this rank's transfers, in order, and returns their number and bytes.
FetchedShards make_transfers(const std::vector<FileTransfer>& transfers, const fs::path& folder,
                             const std::vector<std::string>& files, const Axis& world) {
  FetchedShards fetched;
  MatchedSteps steps;
  for (const FileTransfer& transfer : transfers) {
    steps.run([&] {
      const std::string& name = files[transfer.file];
      if (transfer.from == world.rank)
        exchange_files(*world.comm, FilesToSend{transfer.to, folder, {name}}, std::nullopt);
      if (transfer.to != world.rank) return;
      exchange_files(*world.comm, std::nullopt,
                     FilesToReceive{.from = transfer.from, .folder = folder, .has_readers = true});
      ++fetched.count;
      fetched.num_bytes += static_cast<std::int64_t>(fs::file_size(folder / name));
    });
  }
  steps.end();
  return fetched;
}

}  // namespace

std::optional<LocalChoice> choose_local_checkpoint(const LocalSearch& search, std::ostream& out) {
  return LocalSearcher(search, out).run();
}

FetchedShards fetch_local_shards(const CheckpointSource& source, const ParamStore& store,
                                 Optimizer* optimizer, const Axis& world) {
  const fs::path& folder = source.folder;
  const Manifest& manifest = *source.manifest;
  FilesOfRank mine;
  std::exception_ptr error;
  try {
    const std::set<std::string> needed = needed_files(manifest, store, optimizer);
    mine.lacking = find_files(manifest, [&](const std::string& name) {
      return needed.contains(name) && !fs::exists(folder / name);
    });
  } catch (const std::exception&) {  // thrown on all ranks below
    error = std::current_exception();
  }
  const double has_work = error || !mine.lacking.empty() ? 1 : 0;
  if (all_reduce_max({world, store.device()}, {has_work}, "missing shards").front() == 0) return {};
  const CollectiveSteps steps(world, store.device());
  const FolderOwners owners = find_folder_owners(folder.parent_path(), world, store.device());
  const std::vector<std::string> texts = steps.run_on_all_ranks([&] {
    if (error) std::rethrow_exception(error);
    if (owners.is_leader(world.rank))
      mine.held =
          find_files(manifest, [&](const std::string& name) { return fs::exists(folder / name); });
    return text_of(mine);
  });
  std::vector<std::string> files;
  for (const auto& [file, header] : manifest.headers) files.push_back(file);
  FilesByRank needed, held;
  for (const std::string& text : texts) {
    FilesOfRank rank = parse_files(text, files.size());
    needed.push_back(std::move(rank.lacking));
    held.push_back(std::move(rank.held));
  }
  const TransferPlan plan = plan_transfers(owners, needed, held);
  if (!plan.missing.empty())
    throw UserError({folder.string() + ": " + files[plan.missing.front()] + " is on no host",
                     std::to_string(plan.missing.size()) + " files are missing",
                     "start again: an older checkpoint is then chosen"});
  FetchedShards all;
  for (const std::string& text : steps.run_on_all_ranks([&] {
         const FetchedShards fetched = make_transfers(plan.transfers, folder, files, world);
         return std::to_string(fetched.count) + " " + std::to_string(fetched.num_bytes);
       })) {
    all.count += std::stoll(text);
    all.num_bytes += std::stoll(text.substr(text.find(' ')));
  }
  return all;
}

}  // namespace megatron
