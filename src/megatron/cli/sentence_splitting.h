// Finds what `preprocess-data --split-sentences` needs to know of a language.
#pragma once

#include <memory>
#include <string>

#include "megatron/datasets/punkt_splitter.h"

namespace megatron {

struct SentenceOptions {
  std::string lang = "english";
  std::string punkt_model;  ///< folder of parameters; "": nltk's data folders
  bool keep_newlines = false;
};

struct SentenceSplitting {
  std::shared_ptr<const PunktSplitter> splitter;
  std::string source;  ///< the folder of the parameters
};

/// Reads the parameters of a language. Throws a UserError when no folder has them.
SentenceSplitting sentence_splitting(const SentenceOptions& options);

}  // namespace megatron
