// Implements `megatron batch`: answers a file of requests in OpenAI's form.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/base/progress_bar.h"
#include "megatron/base/wall_clock.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/inference/completions/batch_file.h"
#include "megatron/inference/completions/completion_queue.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"

namespace megatron {
namespace {

/// Prompts that wait in an engine or are continued: more than it can run together.
constexpr std::int64_t kMaxPrompts = 1024;
/// Passes between two exchanges of answers among several replicas.
constexpr int kPassesPerRound = 16;

/// What has been answered, as rank 0 counts it.
struct Counts {
  std::int64_t completed = 0, failed = 0, prompt_tokens = 0, completion_tokens = 0;
};

/// Answers the requests of one replica: every num_replicas()-th line.
class ReplicaBatch {
 public:
  ReplicaBatch(InferenceRank& rank, const LoadedTokenizer& tokenizer, const BatchOptions& options,
               const std::vector<BatchLine>& lines)
      : ReplicaBatch(rank, tokenizer, options, lines,
                     rank.engine_options(options, options.speculative)) {}

  /// Computes some passes. Returns the new tokens so far, and for each request that is finished its
  /// index, status, tokens and answer, a line each. Empty when all are finished. Collective over
  /// the ranks of the replica.
  std::string run(int num_passes) {
    std::ostringstream news;
    if (queue_.is_idle() && next_ >= lines_.size()) return {};
    for (int i = 0; i < num_passes; ++i) {
      for (; queue_.num_prompts() < kMaxPrompts && next_ < lines_.size(); next_ += stride_)
        add(news);
      if (queue_.is_idle()) break;
      for (FinishedCompletion& one : queue_.step()) report(news, std::move(one));
    }
    return std::to_string(queue_.num_new_tokens()) + "\n" + news.str();
  }

 private:
  struct Open {
    std::size_t index;  ///< among lines_
    std::optional<OfflineChat> chat = {};
  };

  ReplicaBatch(InferenceRank& rank, const LoadedTokenizer& tokenizer, const BatchOptions& options,
               const std::vector<BatchLine>& lines, const EngineOptions& engine)
      : rank_(rank),
        model_{.name = options.load,
               .tokenizer = tokenizer,
               .max_model_len = rank.max_model_len(options, engine)},
        lines_(lines),
        stride_(static_cast<std::size_t>(rank.num_replicas())),
        next_(static_cast<std::size_t>(rank.replica())),
        queue_(rank.model(), tokenizer, engine) {}

  void add(std::ostream& news) {
    const BatchLine& line = lines_[next_];
    try {
      Open open{next_};
      if (is_batch_chat(line)) open.chat = open_chat(line);
      queue_.add(line.number, open.chat ? open.chat->request : read_batch_request(line),
                 line.source);
      open_.emplace(line.number, std::move(open));
    } catch (const UserError& error) {
      refuse(news, next_, error);
    }
  }

  OfflineChat open_chat(const BatchLine& line) try {
    if (!chat_) {
      const LoadedTokenizer& tokenizer = model_.tokenizer;
      chat_ = open_served_chat(chat_files(tokenizer.config), *tokenizer.tokenizer);
      model_.chat = chat_.get();
    }
    return open_offline_chat(model_, batch_body(line), line.custom_id);
  } catch (const UserError& error) {
    const auto& [what, got, fix] = error.parts();
    throw UserError({what.starts_with(line.source) ? what : line.source + ": " + what, got, fix});
  }

  void refuse(std::ostream& news, std::size_t index, const UserError& error) const {
    news << index << " 400 0 0 "
         << batch_answer(lines_[index], 400, error_json(error_reply(error)));
  }

  void report(std::ostream& news, FinishedCompletion one) {
    const auto [index, chat] = open_.extract(one.number).mapped();
    try {
      if (one.error) std::rethrow_exception(one.error);
    } catch (const UserError& error) {
      return refuse(news, index, error);
    }
    const BatchLine& line = lines_[index];
    const bool answers = one.request.answers;
    const CompletionUsage usage = usage_of(one.results, answers);
    rank_.note_length(usage.longest, line.source + (answers ? ": a prompt or its answer"
                                                            : ": a prompt with its continuation"));
    const JsonText body =
        chat ? JsonText::verbatim(chat->body(one.results)) : completion_body(line, std::move(one));
    news << index << " 200 " << usage.prompt_tokens << ' ' << usage.completion_tokens << ' '
         << batch_answer(line, 200, body);
  }

  JsonText completion_body(const BatchLine& line, FinishedCompletion one) const {
    const CompletionUsage usage = usage_of(one.results);
    const Tokenizer& tokenizer = *model_.tokenizer.tokenizer;
    return {{"id", "cmpl-" + line.custom_id},
            {"object", "text_completion"},
            {"created", static_cast<std::int64_t>(unix_seconds())},
            {"model", one.request.model.empty() ? model_.name : one.request.model},
            {"choices", completion_choices(one.request, tokenizer, std::move(one.results))},
            {"usage", usage_json(usage)}};
  }

  InferenceRank& rank_;
  std::unique_ptr<const ServedChat> chat_;
  ServedModel model_;  ///< of chats
  const std::vector<BatchLine>& lines_;
  const std::size_t stride_;
  std::size_t next_;
  std::map<std::uint64_t, Open> open_;  ///< requests in the queue, by BatchLine::number
  CompletionQueue queue_;
};

/// Writes the answers of a round and counts them. Returns the replica's new tokens so far.
std::int64_t take_news(const std::string& text, AnswerWriter& answers, Counts& counts) {
  std::istringstream news(text);
  std::int64_t new_tokens = 0, status = 0, prompt_tokens = 0, completion_tokens = 0;
  news >> new_tokens;
  for (std::size_t index; news >> index >> status >> prompt_tokens >> completion_tokens;) {
    std::string line;
    std::getline(news.ignore(1), line);
    answers.add(index, line + "\n");
    (status == 200 ? counts.completed : counts.failed) += 1;
    counts.prompt_tokens += prompt_tokens;
    counts.completion_tokens += completion_tokens;
  }
  return new_tokens;
}

void print_summary(const BatchOptions& options, const Counts& counts, std::size_t num_before,
                   double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(counts.completion_tokens) / seconds : 0;
  if (options.json) {
    std::cout << JsonText{{"requests",
                           {{"total", counts.completed + counts.failed},
                            {"completed", counts.completed},
                            {"failed", counts.failed},
                            {"answered_before", num_before}}},
                          {"prompt_tokens", counts.prompt_tokens},
                          {"completion_tokens", counts.completion_tokens},
                          {"seconds", seconds},
                          {"tokens_per_second", rate}}
                     .dump()
              << std::endl;
    return;
  }
  std::cerr << options.requests << ": " << counts.completed << " requests completed, "
            << counts.failed << " failed";
  if (num_before > 0) std::cerr << ", " << num_before << " were answered before";
  std::cerr << format("; %lld prompt and %lld new tokens in %.1f s, %.1f tokens/s\n",
                      static_cast<long long>(counts.prompt_tokens),
                      static_cast<long long>(counts.completion_tokens), seconds, rate);
}

int batch_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const BatchOptions options = read_batch_options(args, environment.world_size);
  std::vector<std::string> read_here;  // the file, and what is answered already; only on rank 0
  std::optional<AnswerWriter> answers;
  if (environment.rank == 0) {
    read_here.push_back(read_file(options.requests, kMaxInputBytes));
    const std::vector<BatchLine> all = read_batch(read_here.front(), options.requests);
    if (!options.output.empty())
      std::ranges::copy(read_answered(options.output, options.requests, all),
                        std::back_inserter(read_here));
    answers.emplace(options.output, options.as_finished);
  }
  InferenceRank rank(world, options, flags_of(batch_table().set(), &options), families);
  read_here = rank.broadcast(read_here);
  const std::set<std::string> answered(read_here.begin() + 1, read_here.end());
  std::vector<BatchLine> lines = read_batch(read_here.front(), options.requests);
  std::erase_if(lines, [&](const BatchLine& line) { return answered.contains(line.custom_id); });
  const std::size_t num_before = answered.size();
  const LoadedTokenizer tokenizer = rank.load_tokenizer(options.tokenizer, options.parsed);
  ReplicaBatch batch(rank, tokenizer, options, lines);
  ProgressBar progress({.title = "answering",
                        .total = num_before + lines.size(),
                        .start = num_before,
                        .unit = "requests",
                        .enabled = rank.is_main_rank() ? std::nullopt : std::optional(false)});
  const double begin_s = monotonic_seconds();
  Counts counts;
  for (bool is_running = true; is_running;) {
    is_running = false;
    std::int64_t new_tokens = 0;
    for (const std::string& news :
         rank.gather(batch.run(rank.num_replicas() == 1 ? 1 : kPassesPerRound))) {
      is_running |= !news.empty();
      if (answers) new_tokens += take_news(news, *answers, counts);
    }
    // Only rank 0 and the ranks that lead replicas beside it know the answers.
    is_running = !rank.broadcast(std::vector<std::string>(is_running ? 1 : 0)).empty();
    const double seconds = monotonic_seconds() - begin_s;
    progress.update(num_before + static_cast<std::uint64_t>(counts.completed + counts.failed),
                    format("%.1f tokens/s", static_cast<double>(new_tokens) / seconds));
  }
  progress.clear();
  rank.note_speculation();
  if (rank.is_main_rank())
    print_summary(options, counts, num_before, monotonic_seconds() - begin_s);
  return 0;
}

}  // namespace

int run_batch(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("batch", [&](World& world) { return batch_as(world, args, families); });
}

}  // namespace megatron
