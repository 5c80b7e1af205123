#include "megatron/datasets/preprocess.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"
#include "megatron/datasets/document_reader.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/preprocess_checkpoint.h"
#include "megatron/datasets/preprocess_checks.h"
#include "megatron/datasets/preprocess_progress.h"

namespace megatron {
namespace {

/// The tokens of one key in a chunk of documents.
struct KeyTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> lengths;             ///< tokens per sequence
  std::vector<std::int32_t> document_sequences;  ///< sequences per document
};

/// Sizes of the vectors of KeyTokens, to which a malformed document returns them.
struct KeySizes {
  std::size_t tokens, lengths, documents;
};

struct EncodedChunk {
  std::vector<KeyTokens> keys;
  std::uint64_t text_bytes = 0, file_bytes = 0;
  InputPosition end;
  std::int64_t invalid_documents = 0;
  std::string first_invalid;

  std::int64_t malformed_documents = 0;
  std::vector<std::string> first_malformed;
  /// What cleaning found of each document, in their order; empty without cleaning. Documents that
  /// break a rule have no tokens.
  std::vector<Examination> examinations;

  void note_invalid(const std::string& source) {
    if (invalid_documents++ == 0) first_invalid = source;
  }
  void note_malformed(const UserError& error) {
    ++malformed_documents;
    if (first_malformed.size() == PreprocessSummary::kMostShown) return;
    first_malformed.push_back(error.parts().problem());
  }
};

class ChunkEncoder {
 public:
  ChunkEncoder(const PreprocessOptions& options, const Encoder& encode)
      : options_(options), encode_(encode) {
    if (options.cleaning.is_active())
      examiner_ = std::make_shared<const DocumentExaminer>(options.cleaning);
  }

  EncodedChunk operator()(const TextChunk& chunk) const {
    EncodedChunk encoded{.keys = std::vector<KeyTokens>(options_.json_keys.size()),
                         .text_bytes = chunk.text().size(),
                         .file_bytes = chunk.file_bytes,
                         .end = chunk.end};
    DocumentReader reader(options_.json_keys, options_.accepts_invalid_utf8 && !options_.sentences);
    for (const TextDocument& document : split_documents(chunk)) {
      const std::string source = chunk.file + ":" + std::to_string(document.line);
      add_or_skip(encoded, [&] {
        if (options_.conversations) return add_conversations(encoded, document.text, source);
        const auto& texts = reader.read(chunk, document, source);
        std::optional<Examination> examination;
        if (examiner_) examination = examiner_->examine(texts, source);
        if (!examination || examination->broken_rule.empty()) {
          for (std::size_t key = 0; key < texts.size(); ++key)
            add_document(encoded.keys[key], texts[key], source);
        }
        if (reader.had_invalid_utf8()) encoded.note_invalid(source);
        if (examination) encoded.examinations.push_back(*std::move(examination));
      });
    }
    return encoded;
  }

 private:
  /// Calls `add`, which appends one document to every key. A malformed document that may be skipped
  /// leaves nothing behind, also in the keys before the one that is wrong.
  template <class Add>
  void add_or_skip(EncodedChunk& encoded, const Add& add) const {
    if (!options_.skip_malformed) return add();
    std::vector<KeySizes> before;
    for (const KeyTokens& key : encoded.keys)
      before.push_back({key.tokens.size(), key.lengths.size(), key.document_sequences.size()});
    try {
      add();
    } catch (const UserError& error) {
      encoded.note_malformed(error);
      for (std::size_t i = 0; i < before.size(); ++i) {
        encoded.keys[i].tokens.resize(before[i].tokens);
        encoded.keys[i].lengths.resize(before[i].lengths);
        encoded.keys[i].document_sequences.resize(before[i].documents);
      }
    }
  }

  /// Adds one sequence per text that has tokens. A document without tokens stays as an empty one.
  void add_document(KeyTokens& out, const std::vector<std::string_view>& texts,
                    const std::string& source) const {
    std::int32_t sequences = 0;
    for (const std::string_view text : options_.sentences ? sentences_of(texts) : texts) {
      const std::vector<std::int32_t> ids = encode(text, source);
      if (!ids.empty()) add_sequence(out, ids, source);
      sequences += !ids.empty();
    }
    end_document(out, sequences);
  }

  /// Adds the conversations of a line as one sequence. Cleaning examines the contents of messages.
  void add_conversations(EncodedChunk& encoded, std::string_view line,
                         const std::string& source) const {
    bool had_invalid_utf8 = false;
    const Conversation messages = parse_messages(line, source, &had_invalid_utf8);
    std::optional<Examination> examination;
    if (examiner_) {
      std::vector<std::vector<std::string_view>> contents(1);
      for (const Message& message : messages) contents[0].push_back(message.content);
      examination = examiner_->examine(contents, source);
    }
    if (!examination || examination->broken_rule.empty()) {
      std::vector<std::int64_t> ids;
      for (const Conversation& conversation : split_conversations(messages)) {
        const auto own = options_.conversations->tokenize(conversation, source).ids;
        ids.insert(ids.end(), own.begin(), own.end());
      }
      if (!ids.empty()) add_sequence(encoded.keys[0], ids, source);
      end_document(encoded.keys[0], ids.empty() ? 0 : 1);
    }
    if (had_invalid_utf8) encoded.note_invalid(source);
    if (examination) encoded.examinations.push_back(*std::move(examination));
  }

  template <class Id>
  void add_sequence(KeyTokens& out, const std::vector<Id>& ids, const std::string& source) const {
    for (const Id id : ids) {
      if (id < 0 || id >= options_.vocab_size)
        throw UserError({source + ": the tokenizer gave id " + std::to_string(id) +
                             ", outside its vocabulary of " + std::to_string(options_.vocab_size),
                         "", "check --vocab-size and the text"});
    }
    if (ids.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
      throw UserError({source + ": a document has more than 2147483646 tokens", "", "split it"});
    // With room for an end of document, which would double a large vector.
    const std::size_t size = out.tokens.size() + ids.size() + 1;
    if (size > out.tokens.capacity()) out.tokens.reserve(std::max(size, 2 * out.tokens.size()));
    for (const Id id : ids) out.tokens.push_back(static_cast<std::int32_t>(id));
    out.lengths.push_back(static_cast<std::int32_t>(ids.size()));
  }

  void end_document(KeyTokens& out, std::int32_t sequences) const {
    if (sequences > 0 && options_.append_eod) {
      out.tokens.push_back(static_cast<std::int32_t>(options_.eod));
      ++out.lengths.back();
    }
    out.document_sequences.push_back(sequences);
  }

  std::vector<std::string_view> sentences_of(const std::vector<std::string_view>& texts) const {
    std::vector<std::string_view> sentences;
    for (const std::string_view text : texts) {
      const std::vector<std::string_view> own = options_.sentences->split(text);
      sentences.insert(sentences.end(), own.begin(), own.end());
    }
    return sentences;
  }

  /// Encodes a text; errors of the tokenizer get file and line.
  std::vector<std::int32_t> encode(std::string_view text, const std::string& source) const try {
    return encode_(text);
  } catch (const UserError& error) {
    throw UserError({source + ": " + error.parts().what, error.parts().got, error.parts().fix});
  }

  const PreprocessOptions& options_;
  const Encoder& encode_;
  std::shared_ptr<const DocumentExaminer> examiner_;  ///< null without cleaning
};

/// Adds the documents that `stays` says stay; an empty `stays` keeps all.
void write_documents(IndexedDatasetBuilder& builder, const KeyTokens& key,
                     const std::vector<bool>& stays) {
  std::span<const std::int32_t> tokens(key.tokens), lengths(key.lengths);
  for (std::size_t document = 0; document < key.document_sequences.size(); ++document) {
    const auto own = lengths.first(static_cast<std::size_t>(key.document_sequences[document]));
    std::size_t count = 0;
    for (const std::int32_t length : own) count += static_cast<std::size_t>(length);
    if (stays.empty() || stays[document]) builder.add_document(tokens.first(count), own);
    tokens = tokens.subspan(count);
    lengths = lengths.subspan(own.size());
  }
}

/// One run: the builders, and the checkpoint from which a later run continues.
class PreprocessRun {
 public:
  PreprocessRun(const PreprocessOptions& options, const std::vector<std::string>& files)
      : options_(options),
        lock_(IndexedDatasetBuilder::take_lock(options.output_prefix)),
        progress_(options.log, options.log_is_terminal, options.log_interval,
                  total_file_bytes(files)) {
    const std::string job = preprocess_job(options, files);
    const bool is_repeatable = std::ranges::find(files, kStandardInput) == files.end();
    auto found =
        is_repeatable ? PreprocessCheckpointFile::load(options.output_prefix, job) : std::nullopt;
    std::vector<IndexedDatasetBuilderOptions> outputs = builder_options(found);
    if (found && !std::ranges::all_of(outputs, IndexedDatasetBuilder::can_resume)) {
      if (options.log != nullptr)
        *options.log << "note: a run that was killed left only a part of its files: starts anew\n";
      found.reset();
      outputs = builder_options(found);
    }
    if (found) checkpoint_ = *found;
    for (IndexedDatasetBuilderOptions& output : outputs) {
      checkpoint_.counts.outputs.push_back({.prefix = output.prefix});
      builders_.push_back(std::make_unique<IndexedDatasetBuilder>(std::move(output)));
    }
    std::error_code ignored;  // a killed run of another job may have left one
    if (!found) fs::remove(DocumentCleaner::journal_path(options.output_prefix), ignored);
    if (options.cleaning.is_active())
      cleaner_.emplace(options.cleaning, is_repeatable ? options.output_prefix : "",
                       checkpoint_.cleaning);
    if (is_repeatable) file_.emplace(options.output_prefix, job);
    if (found) resume();
  }

  const InputPosition& position() const { return checkpoint_.position; }

  void add(const EncodedChunk& chunk) {
    std::vector<bool> stays;
    for (const Examination& document : chunk.examinations) {
      const bool is_kept = cleaner_->admit(document);
      if (document.broken_rule.empty()) stays.push_back(is_kept);
    }
    for (std::size_t key = 0; key < builders_.size(); ++key)
      write_documents(*builders_[key], chunk.keys[key], stays);
    PreprocessSummary& counts = checkpoint_.counts;
    counts.text_bytes += chunk.text_bytes;
    if (counts.invalid_documents == 0) counts.first_invalid = chunk.first_invalid;
    counts.invalid_documents += chunk.invalid_documents;
    counts.malformed_documents += chunk.malformed_documents;
    for (const std::string& reason : chunk.first_malformed)
      if (counts.first_malformed.size() < PreprocessSummary::kMostShown)
        counts.first_malformed.push_back(reason);
    checkpoint_.position = chunk.end;
    progress_.update(builders_[0]->num_documents(), counts.text_bytes, chunk.file_bytes);
    if (file_ && progress_.seconds() - last_saved_s_ >= options_.checkpoint_interval_s) save();
  }

  PreprocessSummary finish() {
    PreprocessSummary& summary = checkpoint_.counts;
    for (std::size_t key = 0; key < builders_.size(); ++key) {
      const IndexedDatasetBuilder& builder = *builders_[key];
      auto& output = summary.outputs[key];
      output.documents = builder.num_documents();
      output.sequences = builder.num_sequences();
      output.tokens = builder.num_tokens();
      if (output.tokens == 0) throw_no_tokens(output);
    }
    for (auto& builder : builders_) builder->prepare_to_finalize();
    file_.reset();  // a run that is killed from here on starts anew
    for (auto& builder : builders_) builder->finalize();
    if (cleaner_) {
      cleaner_->finish();
      summary.cleaning = cleaner_->report();
    }
    progress_.finish(builders_[0]->num_documents(), summary.text_bytes);
    summary.seconds = progress_.seconds();
    return summary;
  }

 private:
  /// Returns the options of the builders, one for each key.
  std::vector<IndexedDatasetBuilderOptions> builder_options(
      const std::optional<PreprocessCheckpoint>& resumed) const {
    std::vector<IndexedDatasetBuilderOptions> result;
    for (std::size_t key = 0; key < options_.json_keys.size(); ++key)
      result.push_back({.prefix = dataset_prefix(options_, options_.json_keys[key]),
                        .type = optimal_token_dtype(options_.vocab_size),
                        .num_partitions = options_.partitions,
                        .resumed = resumed ? resumed->outputs.at(key) : std::vector<PartState>{}});
    return result;
  }

  [[noreturn]] void throw_no_tokens(const PreprocessSummary::Output& output) const {
    const std::string what = "there are no tokens for " + output.prefix;
    if (!cleaner_ || cleaner_->report().removed.empty()) {
      const PreprocessSummary& counts = checkpoint_.counts;
      if (output.documents == 0 && counts.malformed_documents > 0)
        throw UserError({what,
                         "all documents are malformed, " +
                             std::to_string(counts.malformed_documents) + "; the first is " +
                             counts.first_malformed.front(),
                         "check the format of --input"});
      throw UserError({what, "the input has " + std::to_string(output.documents) + " documents",
                       "check --input and --json-keys"});
    }
    const CleaningReport& report = cleaner_->report();
    throw UserError({what,
                     "cleaning removed " + std::to_string(report.total().documents) + " of " +
                         std::to_string(report.documents) + " documents, as " +
                         report.removed.begin()->second.examples.front() + " by " +
                         report.removed.begin()->first,
                     "relax the rules of cleaning"});
  }

  void resume() {
    const std::int64_t documents = builders_[0]->num_documents();
    progress_.resume(documents, checkpoint_.counts.text_bytes, position().finished_bytes);
    if (options_.log != nullptr)
      *options_.log << "note: continues after the " << documents
                    << " documents that a run that was killed has written" << std::endl;
  }

  void save() {
    checkpoint_.outputs.clear();
    for (auto& builder : builders_) checkpoint_.outputs.push_back(builder->checkpoint());
    if (cleaner_) checkpoint_.cleaning = cleaner_->checkpoint();
    file_->save(checkpoint_);
    last_saved_s_ = progress_.seconds();
  }

  const PreprocessOptions& options_;
  FileLock lock_;  ///< of the files that all keys share
  PreprocessProgress progress_;
  PreprocessCheckpoint checkpoint_;
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders_;
  std::optional<DocumentCleaner> cleaner_;
  std::optional<PreprocessCheckpointFile> file_;  // removed before the files that it describes
  double last_saved_s_ = 0;
};

}  // namespace

PreprocessSummary preprocess(const PreprocessOptions& options, const Encoder& encode) {
  const std::vector<std::string> files = input_files(options);
  check_preprocessing(options, files);
  PreprocessRun run(options, files);
  const StopEvent stop;
  ChunkReader reader(
      files, {.text_kind = options.text_documents, .columns = options.json_keys, .stop = &stop});
  reader.seek(run.position());
  OrderedPool<TextChunk, EncodedChunk> pool(
      {.workers = options.workers,
       .depth = 2 * options.workers + 2,
       .wake_source = [&] { stop.set(); }},
      [&] { return reader.next(); }, ChunkEncoder(options, encode));
  while (const std::optional<EncodedChunk> chunk = pool.next()) run.add(*chunk);
  PreprocessSummary summary = run.finish();
  summary.reads_text_files = std::ranges::any_of(files, is_text_file);
  return summary;
}

}  // namespace megatron
