// Implements `megatron score`: reads token ids and prints their log-probabilities, one JSON object
// per line.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/run_command.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/scorer.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// More than the ids of any text need.
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 28;

/// Reads the lines to score. Only one rank uses it.
class LineSource {
 public:
  /// Opens the file, or standard input if `path` is empty. `was_launched` says that a launcher
  /// started this rank, which may not have forwarded standard input.
  LineSource(const std::string& path, bool was_launched)
      : name_(path.empty() ? "standard input" : path),
        requires_input_(path.empty() && was_launched) {
    if (path.empty()) return;
    if (std::filesystem::is_directory(path)) throw_file_error("read", path, EISDIR);
    refuse_device(path);
    file_.open(path);
    if (!file_) throw_file_error("open", path, errno);
  }

  /// Returns up to `count` non-blank lines. Each is preceded by its name in messages.
  std::vector<std::string> next(std::int64_t count) {
    std::vector<std::string> found;
    std::istream& in = file_.is_open() ? file_ : std::cin;
    for (std::string line; std::ssize(found) < 2 * count && read_line(in, line);) {
      if (line.find_first_not_of(" \t\r\f\v") == std::string::npos) continue;
      found.push_back(name_ + ", line " + std::to_string(number_));
      found.push_back(line);
    }
    if (in.bad()) throw_file_error("read", name_, errno);
    if (number_ == 0 && requires_input_) {
      throw UserError({name_, "is empty under a launcher", "give the lines with --input FILE"});
    }
    if (found.empty() && !has_found_) std::cerr << "note: " << name_ << " has no line to score\n";
    has_found_ |= !found.empty();
    return found;
  }

 private:
  /// Reads the next line. UserError for one that may have no end.
  bool read_line(std::istream& in, std::string& line) {
    line.clear();
    ++number_;
    for (char c = 0; in.get(c) && c != '\n'; line += c)
      if (line.size() == kMaxLineBytes)
        throw UserError({name_ + ", line " + std::to_string(number_), "it has more than 256 MiB",
                         "give the ids of one text in a line"});
    if (in || (!line.empty() && !in.bad())) return true;
    --number_;
    return false;
  }

  const std::string name_;
  const bool requires_input_;
  std::ifstream file_;
  std::int64_t number_ = 0;  ///< of lines so far
  bool has_found_ = false;
};

/// Returns the result of a line as JSON. Collective over the ranks of a replica.
std::string answer(InferenceRank& rank, const std::string& source, const std::string& line) {
  const auto [ids, encoder_ids] = read_scored_line(line, source);
  const bool has_encoder = rank.model().model().has_encoder();
  if (has_encoder && encoder_ids.empty())
    throw UserError({source + ": field 'encoder_ids' is missing",
                     "the model has an encoder and a decoder",
                     "give the ids of the encoder's text in it, and those of the decoder's in "
                     "'ids', with the token that it begins with"});
  const Score score = score_tokens(rank.model(), ids, source, encoder_ids);
  rank.note_length(std::max(std::ssize(ids), std::ssize(encoder_ids)), source);
  return JsonText{{"logprobs", score.logprobs}, {"loss", score.loss}}.dump();
}

int score_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const ScoreOptions options = read_score_options(args, environment.world_size);
  std::optional<LineSource> lines;  // only on rank 0
  if (environment.rank == 0) lines.emplace(options.input, !environment.master_addr.empty());
  InferenceRank rank(world, options, flags_of(score_table().set(), &options), families);
  while (true) {
    // Two entries for each replica: the name and the text of its line.
    const std::vector<std::string> round =
        rank.broadcast(lines ? lines->next(rank.num_replicas()) : std::vector<std::string>{});
    if (round.empty()) return 0;
    const auto mine = static_cast<std::size_t>(2 * rank.replica());
    const std::string result =
        mine < round.size() ? answer(rank, round[mine], round[mine + 1]) : "";
    for (const std::string& line : rank.gather(result)) {
      if (!rank.is_main_rank() || line.empty()) continue;
      std::cout << line << '\n';
      flush_stdout();
    }
  }
}

}  // namespace

int run_score(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("score", [&](World& world) { return score_as(world, args, families); });
}

}  // namespace megatron
