#include "megatron/datasets/text_corpus.h"

#include <mutex>

#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"
#include "megatron/datasets/document_reader.h"

namespace megatron {
namespace {

struct NumberedChunk {
  TextChunk chunk;
  std::uint64_t number;
};

struct VisitedChunk {
  TextCorpusSummary counts;
  std::uint64_t file_bytes = 0;
};

/// The numbers of the workers that have no chunk.
class FreeWorkers {
 public:
  explicit FreeWorkers(std::int64_t workers) {
    for (std::int64_t i = 0; i < workers; ++i) free_.push_back(static_cast<std::size_t>(i));
  }

  /// Takes a number until its end.
  class Lease {
   public:
    explicit Lease(FreeWorkers& workers) : workers_(workers) {
      const std::lock_guard lock(workers_.mutex_);
      worker_ = workers_.free_.back();
      workers_.free_.pop_back();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(workers_.mutex_);
      workers_.free_.push_back(worker_);
    }
    std::size_t worker() const { return worker_; }

   private:
    FreeWorkers& workers_;
    std::size_t worker_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::size_t> free_;
};

/// Passes the texts of a document to `visit`, or notes why there are none.
void visit_document(const TextCorpusOptions& options, const TextChunk& chunk,
                    const TextDocument& document, DocumentReader& reader,
                    const std::function<void(std::string_view)>& visit, TextCorpusSummary& counts) {
  const std::string source = chunk.file + ":" + std::to_string(document.line);
  try {
    const auto& keys = reader.read(chunk, document, source);
    if (reader.had_invalid_utf8())
      throw UserError({source + ": the text is not valid UTF-8", "",
                       "convert it, or leave such documents out with --on-error skip"});
    for (const auto& texts : keys)
      for (const std::string_view text : texts) {
        visit(text);
        counts.text_bytes += text.size();
      }
    ++counts.documents;
  } catch (const UserError& error) {
    if (!options.skip_malformed && chunk.kind == DocumentKind::json_line &&
        options.format == InputFormat::by_name && !reader.had_invalid_utf8())
      throw UserError({error.parts().what, error.parts().got,
                       error.parts().fix + "; if the file is text, add --input-format text"});
    if (!options.skip_malformed) throw;
    if (counts.malformed_documents++ == 0) counts.first_malformed = error.parts().problem();
  }
}

}  // namespace

TextCorpusSummary read_text_corpus(const TextCorpusOptions& options, const TextVisitor& visit) {
  const std::vector<std::string> files = expand_inputs(options.inputs, options.flag);
  const std::uint64_t total = total_file_bytes(files);
  ChunkReader reader(files, {.text_kind = options.text_documents,
                             .format = options.format,
                             .columns = options.json_keys});
  FreeWorkers workers(options.workers);
  std::uint64_t num_chunks = 0;
  const auto next_chunk = [&]() -> std::optional<NumberedChunk> {
    std::optional<TextChunk> chunk = reader.next();
    if (!chunk) return std::nullopt;
    return NumberedChunk{std::move(*chunk), num_chunks++};
  };
  const auto visit_chunk = [&](const NumberedChunk& input) {
    const TextChunk& chunk = input.chunk;
    VisitedChunk visited{.counts = {}, .file_bytes = chunk.file_bytes};
    const FreeWorkers::Lease lease(workers);
    DocumentReader documents(options.json_keys, /*keeps_invalid_utf8=*/false);
    for (const TextDocument& document : split_documents(chunk)) {
      const std::function<void(std::string_view)> visit_text = [&](std::string_view text) {
        visit({lease.worker(), text, chunk, input.number, document.line});
      };
      visit_document(options, chunk, document, documents, visit_text, visited.counts);
    }
    return visited;
  };
  OrderedPool<NumberedChunk, VisitedChunk> pool(
      {.workers = options.workers, .depth = 2 * options.workers + 2}, next_chunk, visit_chunk);
  TextCorpusSummary summary;
  while (const std::optional<VisitedChunk> chunk = pool.next()) {
    const TextCorpusSummary& counts = chunk->counts;
    if (summary.malformed_documents == 0) summary.first_malformed = counts.first_malformed;
    summary.malformed_documents += counts.malformed_documents;
    summary.documents += counts.documents;
    summary.text_bytes += counts.text_bytes;
    if (options.progress) options.progress(chunk->file_bytes, total);
  }
  return summary;
}

}  // namespace megatron
