// The interface of a training set: numbered samples in training order, and their named fields,
// which loader, packing and context parallelism loop over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace megatron {

/// The values of a field, row-major.
using FieldValues = std::variant<std::vector<std::int64_t>, std::vector<std::int32_t>,
                                 std::vector<float>, std::vector<std::uint8_t>>;

struct SampleField {
  std::string name;
  FieldValues type = {};                 ///< an empty buffer of its values' type
  std::vector<std::int64_t> shape = {};  ///< of one sample; empty: one number
  bool per_position = true;              ///< shape[0] counts positions, which packing and cp divide
  bool holds_tokens = false;             ///< int64 ids, which must be below the model's vocabulary
};
using SampleFields = std::shared_ptr<const std::vector<SampleField>>;

/// Returns the fields of a causal language model, each [sequence_length]: tokens; labels, the token
/// that follows each token; position_ids, which restart after an end of document with
/// reset_position_ids; loss_mask, float32, 0 where the label is padding and, with eod_mask_loss,
/// after an end of document.
std::vector<SampleField> causal_fields(std::int64_t sequence_length);

/// The values of all fields of a dataset, in their order: one buffer for each.
struct FieldBuffers {
  SampleFields fields;
  std::vector<FieldValues> values;

  /// Takes the values of all fields; leaves them out to begin with empty buffers.
  template <class... Values>
  FieldBuffers(SampleFields of, std::vector<Values>... all) : fields(std::move(of)) {
    values.reserve(fields->size());
    (values.emplace_back(std::move(all)), ...);
    for (std::size_t i = values.size(); i < fields->size(); ++i)
      values.push_back((*fields)[i].type);
  }
  /// Returns the values of a field, which must have this type. InternalError for an unknown name.
  template <class T = std::int64_t>
  const std::vector<T>& get(std::string_view name) const {
    return std::get<std::vector<T>>(values[index_of(name)]);
  }
  /// Returns the length of the first field with positions; 0 without any.
  std::int64_t sequence_length() const;

 private:
  std::size_t index_of(std::string_view name) const;
};

struct Sample : FieldBuffers {
  /// Positions at which attention restarts, first 0; only 0 without reset_attention_mask and
  /// inter_document_masking.
  std::vector<std::int64_t> document_starts = {0};
  std::vector<std::int64_t> padding = {};  ///< positions behind the tokens of a document that hold
                                           ///< padding, ascending
};

/// How full the sequences are that one packing strategy makes of documents or conversations, in one
/// epoch.
struct PackingShare {
  std::string strategy;        ///< line, bfd or bfd_split
  bool is_used = false;        ///< the strategy of the run
  std::int64_t documents = 0;  ///< documents, or lines of conversations, that were counted
  std::int64_t sequences = 0;  ///< number of sequences made of them
  std::int64_t tokens = 0;     ///< their tokens in these sequences
  std::int64_t padding = 0;    ///< positions that hold padding
  std::int64_t truncated = 0;  ///< their tokens that are cut off
  std::int64_t unlabeled = 0;  ///< conversations of which no token in a sequence has a loss
};

/// What one mixture of a run takes of a corpus.
struct PhaseShare {
  std::int64_t first_iteration = 0, last_iteration = 0;  ///< from 1
  double weight = 0;                                     ///< weight in this mixture
  std::int64_t samples = 0;
  double epochs = 0;  ///< number of passes over the corpus, in this mixture alone
};

/// The part that one corpus contributes to a number of samples.
struct CorpusShare {
  std::string name;                         ///< the path prefix, or "mock data"
  double weight = 1;                        ///< weight in the blend
  std::int64_t documents = 0;               ///< documents, or lines of conversations, in this split
  std::int64_t tokens = 0;                  ///< tokens of the corpus in this split; 0: unknown
  std::int64_t samples = 0;                 ///< samples from this corpus
  double epochs = 0;                        ///< number of passes over `tokens`
  std::int64_t conversations = 0;           ///< conversations whose tokens were counted
  std::int64_t unlabeled = 0;               ///< those of which no token has a loss
  std::vector<PackingShare> packings = {};  ///< of sequences that are packed, otherwise empty
  std::vector<PhaseShare> phases = {};      ///< of --blend-schedule, otherwise empty
};

/// Thread-safe: several threads may read samples at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// Returns the fields that every sample has.
  virtual const SampleFields& fields() const = 0;
  /// Returns sample `index`, 0 ≤ index < size().
  virtual Sample sample(std::int64_t index) const = 0;
  /// Returns the raw ids of a sample, by default those of its first field; sequence_length + 1 of
  /// them when samples carry an extra token.
  virtual std::vector<std::int64_t> text(std::int64_t index) const {
    return std::get<std::vector<std::int64_t>>(sample(index).values.front());
  }
  /// Returns the sample's name for errors: its dataset and the number in that dataset.
  virtual std::string describe(std::int64_t index) const = 0;
  /// Returns what the first `samples` samples take from each corpus. Reads the length of every
  /// document, so only one rank should call it, once.
  virtual std::vector<CorpusShare> shares(std::int64_t samples) const = 0;
};

}  // namespace megatron
