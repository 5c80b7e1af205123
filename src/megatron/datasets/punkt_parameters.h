// What Punkt knows of a language (Kiss and Strunk, "Unsupervised Multilingual Sentence Boundary
// Detection", 2006), in the files of nltk's punkt_tab.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "megatron/base/files.h"

namespace megatron {

/// Where a word was seen, and with which case of its first letter. The bits are those of the files.
enum OrthographicContext : int {
  kUpperAtStart = 1 << 1,  ///< at the start of a sentence, with upper case
  kUpperWithin = 1 << 2,   ///< within a sentence
  kUpperUnknown = 1 << 3,  ///< at a place that may be either
  kLowerAtStart = 1 << 4,
  kLowerWithin = 1 << 5,
  kLowerUnknown = 1 << 6,
  kUpper = kUpperAtStart | kUpperWithin | kUpperUnknown,
  kLower = kLowerAtStart | kLowerWithin | kLowerUnknown
};

/// All words are types: in lower case, and numbers are "##number##".
struct PunktParameters {
  std::unordered_set<std::string> abbreviations;      ///< without the final period
  std::unordered_set<std::string> collocations;       ///< "first\tsecond": no sentence ends between
  std::unordered_set<std::string> sentence_starters;  ///< words that often begin sentences
  std::unordered_map<std::string, int> contexts;      ///< bits of OrthographicContext

  int context(const std::string& type) const {
    const auto found = contexts.find(type);
    return found == contexts.end() ? 0 : found->second;
  }
  bool operator==(const PunktParameters&) const = default;
};

/// Reads abbrev_types.txt, collocations.tab, sent_starters.txt and ortho_context.tab of a folder.
/// A UserError names the file and the line.
PunktParameters load_punkt(const fs::path& folder);

}  // namespace megatron
