// Decides which documents stay. Threads examine documents in any order; admit() is then called in
// the order of the input, so the first of duplicates stays for any number of threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/cleaning/document_rules.h"
#include "megatron/datasets/cleaning/duplicate_finder.h"
#include "megatron/datasets/cleaning/minhash.h"
#include "megatron/datasets/continued_file.h"

namespace megatron {

/// What cleaning removed, and why.
struct CleaningReport {
  static constexpr std::size_t kMostExamples = 3;
  struct Removed {
    std::int64_t documents = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> examples;  ///< of the first ones: "file:line: start of the text"
    bool operator==(const Removed&) const = default;
  };

  std::int64_t documents = 0;              ///< examined
  std::uint64_t bytes = 0;                 ///< of their texts
  std::map<std::string, Removed> removed;  ///< by the name of the rule

  void add_removed(std::string_view rule, std::uint64_t text_bytes, const std::string& example);
  /// The sum over all rules.
  Removed total() const;
  bool operator==(const CleaningReport&) const = default;
};

JsonText to_json(const CleaningReport& report);

struct CleaningOptions {
  DocumentRules rules;
  DuplicateOptions duplicates;
  /// Receives the removed documents as JSON lines with source, rule and text; "": no file.
  std::string removed_file;

  bool finds_duplicates() const { return duplicates.exact || duplicates.near; }
  bool is_active() const { return finds_duplicates() || has_rules(rules); }
  /// Returns a text that differs between options that may keep other documents.
  std::string identity() const;
};

/// What is known of a document before it is compared with the ones before it.
struct Examination {
  std::string source;            ///< "file:line"
  std::string_view broken_rule;  ///< "" when it breaks none
  DuplicateKeys keys;
  std::string text;  ///< the whole text if removed documents are written, else its start
  std::uint64_t bytes = 0;
};

/// Immutable; threads may share it.
class DocumentExaminer {
 public:
  /// Throws a UserError for options that make no sense.
  explicit DocumentExaminer(const CleaningOptions& options);
  /// Several texts of a document are examined as one, joined by line ends. Invalid UTF-8 is read as
  /// U+FFFD.
  Examination examine(const std::vector<std::vector<std::string_view>>& texts,
                      const std::string& source) const;

 private:
  CleaningOptions options_;
  DocumentFilter filter_;
  std::optional<MinHasher> hasher_;
};

/// The state of cleaning at a checkpoint.
struct CleaningState {
  CleaningReport report;
  std::uint64_t journal_bytes = 0, removed_bytes = 0;  ///< sizes of the files
};

/// Throws a UserError if the file of removed documents is a device, a link or a pipe, or one of the
/// files that the run reads or writes: it would replace them.
void check_removed_file(const fs::path& file, std::span<const fs::path> others);

/// Not thread-safe.
class DocumentCleaner {
 public:
  /// Keeps what it needs to continue after a kill in journal_path(), unless `output_prefix` is "".
  /// `resumed` is the state from which it continues. Throws a UserError if another process is
  /// writing the same file of removed documents.
  DocumentCleaner(const CleaningOptions& options, const std::string& output_prefix,
                  const CleaningState& resumed);
  /// Removes the files unless finish() was called.
  ~DocumentCleaner();

  static std::string journal_path(const std::string& output_prefix) {
    return output_prefix + ".partial.kept";
  }
  /// Returns whether the document stays.
  bool admit(const Examination& document);
  CleaningState checkpoint();
  const CleaningReport& report() const { return report_; }
  /// Gives the file of removed documents its name.
  void finish();

 private:
  void remove(const Examination& document, std::string_view rule,
              std::optional<std::uint32_t> original);

  CleaningOptions options_;
  CleaningReport report_;
  std::optional<DuplicateFinder> duplicates_;
  std::optional<FileLock> removed_lock_;
  std::optional<ContinuedFile> removed_;
};

}  // namespace megatron
