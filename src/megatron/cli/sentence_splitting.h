// Finds or learns what `preprocess-data --split-sentences` needs to know of a language.
#pragma once

#include <memory>
#include <string>

#include "megatron/datasets/preprocess.h"

namespace megatron {

struct SentenceOptions {
  std::string lang = "english";
  std::string punkt_model;  ///< folder of parameters; "": nltk's data folders, or the text itself
  bool keep_newlines = false;
};

struct SentenceSplitting {
  std::shared_ptr<const PunktSplitter> splitter;
  std::string source;  ///< the folder of the parameters, or where learned ones belong
  bool is_learned = false;
};

/// Reads the parameters of a language; where nltk's data folders have none, learns them from the
/// inputs of `preprocessing`, and their folder is beside its outputs.
SentenceSplitting sentence_splitting(const SentenceOptions& options,
                                     const PreprocessOptions& preprocessing);

}  // namespace megatron
