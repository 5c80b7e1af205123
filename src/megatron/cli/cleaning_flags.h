// The flags of `preprocess-data` that leave documents out, and the report of what went.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "megatron/config/field_table.h"
#include "megatron/datasets/cleaning/document_cleaner.h"

namespace megatron {

struct CleaningFlags {
  DocumentRules rules;
  bool gopher_rules = false, exact_dedup = false, minhash_dedup = false;
  std::optional<std::int64_t> minhash_ngrams, minhash_bands, minhash_rows, minhash_seed;
  std::optional<double> minhash_threshold, min_script_ratio;
  std::string removed_file;
};

const FieldTable<CleaningFlags>& cleaning_table();

/// Throws a UserError for flags that would have no effect.
CleaningOptions cleaning_options(const CleaningFlags& flags);

/// Prints what went and why, as lines of text; nothing without cleaning.
void print_cleaning_report(std::ostream& out, const CleaningReport& report);

}  // namespace megatron
