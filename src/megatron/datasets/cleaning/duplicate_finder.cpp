#include "megatron/datasets/cleaning/duplicate_finder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A band that many documents share is common text; only its first ones are compared.
constexpr int kMostCandidates = 64;

}  // namespace

DuplicateFinder::DuplicateFinder(const DuplicateOptions& options, const std::string& journal,
                                 std::uint64_t resumed)
    : options_(options) {
  if (options_.near) num_bands_ = static_cast<std::size_t>(options_.near->bands);
  if (options_.compares_signatures())
    num_minima_ = num_bands_ * static_cast<std::size_t>(options_.near->rows);
  bands_.resize(num_bands_);
  if (journal.empty()) return;
  if (resumed > 0) read_journal(journal, resumed);
  journal_ = std::make_unique<ContinuedFile>(journal, resumed);
}

DuplicateFinder::~DuplicateFinder() {
  if (journal_) journal_->remove();
}

/// 64-bit words of a document in the journal: the hash of its text, whether it has words, its bands
/// and its signature.
std::size_t DuplicateFinder::record_words() const { return 3 + num_bands_ + (num_minima_ + 1) / 2; }

void DuplicateFinder::read_journal(const std::string& path, std::uint64_t size) {
  const MappedFile file(path);
  const std::size_t words = record_words(), record_bytes = words * sizeof(std::uint64_t);
  if (file.size() < size || size % record_bytes != 0)
    throw UserError({path + " is shorter than what was written to it", "", "remove it"});
  std::vector<std::uint64_t> record(words);
  for (std::uint64_t at = 0; at < size; at += record_bytes) {
    std::memcpy(record.data(), file.bytes().data() + at, record_bytes);
    DuplicateKeys keys{.text_hash = {record[0], record[1]}, .bands = {}, .signature = {}};
    if (record[2] != 0) {
      keys.bands.assign(record.begin() + 3,
                        record.begin() + 3 + static_cast<std::ptrdiff_t>(num_bands_));
      if (num_minima_ > 0) {
        keys.signature.resize(num_minima_);
        std::memcpy(keys.signature.data(), record.data() + 3 + num_bands_, num_minima_ * 4);
      }
    }
    remember(keys);
  }
}

std::optional<std::uint32_t> DuplicateFinder::find_equal(const DuplicateKeys& keys) const {
  std::optional<std::uint32_t> equal;
  texts_.find(keys.text_hash[0], [&](std::uint32_t document) {
    if (second_halves_[document] == keys.text_hash[1]) equal = document;
    return equal.has_value();
  });
  return equal;
}

bool DuplicateFinder::is_similar(const DuplicateKeys& keys, std::uint32_t document) const {
  if (num_minima_ == 0) return true;
  const auto other = signatures_.begin() + static_cast<std::ptrdiff_t>(document * num_minima_);
  const std::vector<std::uint32_t> minima(other, other + static_cast<std::ptrdiff_t>(num_minima_));
  return estimated_jaccard(keys.signature, minima) >= options_.threshold;
}

std::optional<std::uint32_t> DuplicateFinder::find_similar(const DuplicateKeys& keys) const {
  std::optional<std::uint32_t> first;
  for (std::size_t band = 0; band < keys.bands.size(); ++band) {
    bands_[band].find(keys.bands[band], [&](std::uint32_t document) {
      if (first && document >= *first) return true;
      if (!is_similar(keys, document)) return false;
      first = document;
      return true;
    });
  }
  return first;
}

std::optional<Duplicate> DuplicateFinder::find(const DuplicateKeys& keys) const {
  if (options_.exact)
    if (const auto equal = find_equal(keys)) return Duplicate{"exact_dedup", *equal};
  if (const auto similar = find_similar(keys)) return Duplicate{"minhash_dedup", *similar};
  return std::nullopt;
}

void DuplicateFinder::remember(const DuplicateKeys& keys) {
  if (documents_ == std::numeric_limits<std::uint32_t>::max() - 1)
    throw UserError({"deduplication holds at most 4294967294 documents", "", "divide the input"});
  if (options_.exact) {
    texts_.add(keys.text_hash[0], documents_);
    second_halves_.push_back(keys.text_hash[1]);
  }
  for (std::size_t band = 0; band < keys.bands.size(); ++band) {
    int candidates = 0;
    bands_[band].find(keys.bands[band],
                      [&](std::uint32_t) { return ++candidates == kMostCandidates; });
    if (candidates < kMostCandidates) bands_[band].add(keys.bands[band], documents_);
  }
  if (num_minima_ > 0) {
    signatures_.insert(signatures_.end(), keys.signature.begin(), keys.signature.end());
    signatures_.resize((std::size_t{documents_} + 1) * num_minima_);
  }
  ++documents_;
}

void DuplicateFinder::add(const DuplicateKeys& keys) {
  remember(keys);
  if (!journal_) return;
  std::vector<std::uint64_t> record(record_words());
  record[0] = keys.text_hash[0];
  record[1] = keys.text_hash[1];
  record[2] = keys.bands.empty() ? 0 : 1;
  std::ranges::copy(keys.bands, record.begin() + 3);
  if (!keys.signature.empty())
    std::memcpy(record.data() + 3 + num_bands_, keys.signature.data(), num_minima_ * 4);
  journal_->writer().write_values(std::span<const std::uint64_t>(record));
}

std::uint64_t DuplicateFinder::checkpoint() { return journal_ ? journal_->checkpoint() : 0; }

}  // namespace megatron
