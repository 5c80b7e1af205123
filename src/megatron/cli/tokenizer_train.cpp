// Implements `megatron tokenizer train`.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/progress_bar.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/tokenizer_command.h"
#include "megatron/datasets/text_corpus.h"
#include "megatron/tokenizers/training/tokenizer_trainer.h"
#include "megatron/tokenizers/training/trained_files.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

/// Shows the progress of the steps of a training that takes more than two seconds: as a bar on a
/// terminal, else as a line every ten seconds.
class StepProgress {
 public:
  double seconds() const { return seconds_since(begin_); }

  void update(std::string_view step, std::uint64_t done, std::uint64_t total) {
    if (step != title_) start(step, total);
    if (seconds() < next_s_) return;
    if (is_terminal_) return bar_->update(done);
    next_s_ = seconds() + kLineInterval;
    std::cerr << progress_bar_line(options_, done, seconds_since(step_begin_), "", 100)
              << std::endl;
  }
  /// Removes the bar.
  void finish() { bar_.reset(); }

 private:
  static constexpr double kQuiet = 2, kLineInterval = 10;
  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }
  void start(std::string_view step, std::uint64_t total) {
    title_ = step;
    step_begin_ = Clock::now();
    const char* const unit = step == "reading" ? "bytes" : step == "EM" ? "iterations" : "tokens";
    options_ = {.title = title_, .total = total, .unit = unit};
    bar_ = std::make_unique<ProgressBar>(options_);
  }

  Clock::time_point begin_ = Clock::now(), step_begin_;
  bool is_terminal_ = is_terminal(STDERR_FILENO);
  double next_s_ = kQuiet;
  std::string title_;
  ProgressBarOptions options_;
  std::unique_ptr<ProgressBar> bar_;
};

void check_options(const TokenizerCommandOptions& options) {
  const char* const example =
      "megatron tokenizer train --model byte-bpe --vocab-size 32000 --output FOLDER FILE...";
  if (options.files.empty()) throw UserError({"train needs a file of text", "", example});
  if (options.output.empty()) throw UserError({"train needs --output", "", example});
  std::error_code code;
  if (fs::exists(options.output, code) && !fs::is_directory(options.output, code))
    throw UserError({"--output " + options.output + " is a file", "", "give a folder"});
}

/// Says which texts or uses the tokenizer is not made for.
void write_notes(const TokenizerTrainerOptions& wanted) {
  const std::vector<std::string>& special = *wanted.special_tokens;
  if (wanted.model == TrainedModel::wordpiece) {
    if (std::ranges::find(special, wanted.unk_token) == special.end())
      std::cerr << "note: " << wanted.unk_token
                << " is no special token, so words with unknown characters cannot be encoded\n";
  } else if (eos_token_of(special).empty()) {
    std::cerr << "note: no special token ends documents, as --append-eod of preprocess-data needs; "
                 "add --special-tokens '<|endoftext|>'\n";
  }
}

}  // namespace

int run_tokenizer_train(const TokenizerCommandOptions& options) {
  check_options(options);
  StepProgress progress;
  TokenizerTrainer trainer(options.trainer, static_cast<std::size_t>(options.workers));
  TextCorpusOptions reading = options.corpus(options.files);
  reading.progress = [&](auto done, auto total) { progress.update("reading", done, total); };
  const TextCorpusSummary corpus = read_text_corpus(
      reading, [&](const CorpusText& text) { trainer.add_text(text.worker, text.text); });
  const TrainedTokenizer trained =
      trainer.train([&](std::string_view step, std::int64_t done, std::int64_t total) {
        progress.update(step, static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
      });
  progress.finish();
  if (corpus.malformed_documents > 0)
    std::cerr << "note: documents skipped: " << corpus.malformed_documents << " (the first is "
              << corpus.first_malformed << ")\n";
  const fs::path folder = options.output;
  megatron::create_directories(folder);
  write_file_atomically(folder / "tokenizer.json", trained.tokenizer_json);
  write_file_atomically(folder / "tokenizer_config.json", trained.tokenizer_config_json);
  const TokenizerTrainerOptions wanted = with_defaults(options.trainer);
  write_notes(wanted);
  if (trained.vocab_size < *wanted.vocab_size)
    std::cerr << "note: the text gives no more than " << trained.vocab_size << " tokens\n";
  std::cout << (folder / "tokenizer.json").string() << ": " << trained.vocab_size << " tokens from "
            << trained.words << " words, " << trained.distinct_words << " of them distinct"
            << format(" (%.1f MB of text in %.1f s)\n",
                      static_cast<double>(corpus.text_bytes) / 1e6, progress.seconds());
  return 0;
}

}  // namespace megatron
