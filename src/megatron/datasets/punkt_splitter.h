// Divides text into sentences with Punkt (Kiss and Strunk, 2006), as nltk's PunktSentenceTokenizer
// does: the same parameters give the same sentences.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/datasets/punkt_parameters.h"

namespace megatron {

/// Immutable and thread-safe.
class PunktSplitter {
 public:
  /// With `keep_newlines`, white space after a sentence belongs to it, as with Megatron-LM's
  /// --keep-newlines; otherwise it belongs to none.
  PunktSplitter(PunktParameters parameters, bool keep_newlines);

  /// Returns the sentences of a text, which is valid UTF-8. Closing quotes and brackets belong to
  /// the sentence before them. As in Megatron-LM, a text is divided after each million characters.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  /// A place where a sentence may end. All members are byte offsets.
  struct Candidate {
    std::size_t begin = 0;  ///< where the word begins that holds the final character
    std::size_t match = 0;  ///< where the search found the candidate
    std::size_t end = 0;    ///< where the sentence would end
    std::size_t next = 0;   ///< where the next one would begin
    std::size_t after = 0;  ///< end of the word or the punctuation behind the candidate
  };
  struct Range {
    std::size_t begin = 0, end = 0;
  };

  bool find(std::string_view text, std::size_t from, Candidate& candidate) const;
  std::vector<Candidate> candidates(std::string_view text) const;
  bool contains_end(std::string_view context) const;
  void split_piece(std::string_view text, std::vector<std::string_view>& sentences) const;

  PunktParameters parameters_;
  bool keep_newlines_;
};

}  // namespace megatron
