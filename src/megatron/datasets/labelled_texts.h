// Texts with labels, on which encoders are finetuned: JSON lines, tables as those of GLUE, and
// folders of RACE, which Megatron-LM's tasks/glue and tasks/race read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/source_dataset.h"

namespace megatron {

class Tokenizer;
struct DataConfig;

/// A text, alone or paired with another one, and its class; or a text, choices that are each paired
/// with it, and the right choice.
struct LabelledText {
  std::string text = {};
  std::vector<std::string> others = {};  ///< the second text of a pair, if there is one, or choices
  bool others_come_first = false;        ///< in their pairs, cut to 128 tokens, as RACE's
  std::string label = {};                ///< as the file has it
  std::int64_t number = 0;               ///< of the class or of the choice
  std::string where = {};                ///< "file:line"
  bool has_choices() const { return others.size() > 1; }
};
using LabelledTexts = std::vector<LabelledText>;

/// All labelled texts of a run.
struct LabelledData {
  std::map<std::string, std::shared_ptr<const LabelledTexts>> files = {};  ///< by path
  std::vector<std::string> classes = {};  ///< sorted labels, where they are no numbers
  std::int64_t num_classes = 0;           ///< 1 for choices
  std::int64_t num_choices = 1;
  std::vector<std::string> warnings = {};
};

/// Reads the data of a run. A .tsv file is a table whose first line names its columns, a folder has
/// .txt files with the JSON lines of RACE, and any other file has JSON lines: "label" with "text",
/// or "sentence1" and "sentence2", or other names that data sets have, or "choices" with
/// "question". Labels that are numbers are classes, and others are numbered in sorted order. A
/// choice is named by its number from 0, or by a letter from A. UserErrors name file and line. Mock
/// data have numbers of classes and choices, but no files.
LabelledData read_labelled_data(const DataConfig& config);

/// Returns a thousand texts of random tokens, for runs without data; no choices: 1.
LabelledTexts mock_labelled_texts(std::int64_t num_classes, std::int64_t num_choices,
                                  const Tokenizer& tokenizer);

/// Makes samples of one split of `texts`: [CLS] text [SEP], or [CLS] text [SEP] second [SEP], cut
/// to the sequence length. Choices lie one after another in a row. Each epoch of training has an
/// order of its own, by the seed; the other splits have that of the file. Fields are tokens, types,
/// position_ids, loss_mask (1 at the first position of a sample), document_ids, which keep
/// attention off padding and other choices, class and, with choices, choice_starts.
std::shared_ptr<const SourceDataset> make_labelled_dataset(
    std::shared_ptr<const LabelledTexts> texts, const SourcePart& part,
    const GptDatasetOptions& options);

}  // namespace megatron
