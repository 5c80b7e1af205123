// Texts with labels, on which encoders are finetuned: JSON lines, tables of GLUE and folders of
// RACE, the last two as Megatron-LM's tasks/glue and tasks/race read them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/source_dataset.h"

namespace megatron {

class Tokenizer;
struct DataConfig;
enum class FinetuneTask;

/// A text, or a pair of texts, and its class; or a text with choices, each of which makes a pair
/// with it, and the right choice.
struct LabelledText {
  std::string text = {}, second = {};     ///< no `second`: a single text
  std::vector<std::string> choices = {};  ///< none: the text is classified
  bool choices_come_first = false;        ///< in their pairs, with at most kMostChoiceTokens
  std::string label = {};                 ///< as the file has it
  std::int64_t number = 0;                ///< of the class or of the choice
  std::string where = {};                 ///< "file:line"
};
using LabelledTexts = std::vector<LabelledText>;

/// RACE's limit on the tokens of a question with one of its answers.
inline constexpr std::size_t kMostChoiceTokens = 128;

/// Reads a file or a folder. A .tsv file is a table: MNLI and QQP have the columns of GLUE, another
/// task has a line of names. Another file has JSON lines: "label" with "text", "sentence1" and
/// "sentence2" or names that data sets on the Hugging Face Hub have, or for choices "label",
/// "choices" and "question". A folder has .txt files with RACE's JSON lines. UserErrors name file
/// and line. Numbers are not yet set. `warnings` receive what was left out.
LabelledTexts read_labelled_texts(const fs::path& path, FinetuneTask task,
                                  std::vector<std::string>& warnings);

/// All labelled texts of a run.
struct LabelledData {
  std::map<std::string, std::shared_ptr<const LabelledTexts>> files = {};  ///< by path
  std::vector<std::string> classes = {};  ///< sorted labels, where they are no numbers
  std::int64_t num_classes = 0;           ///< 1 for choices
  std::int64_t num_choices = 1;
  std::vector<std::string> warnings = {};
};

/// Reads the data of a run and numbers its classes: labels that are numbers are these, others are
/// counted in sorted order. A choice is named by its number from 0, or by a letter from A. Mock
/// data have classes and choices, but no files.
LabelledData read_labelled_data(const DataConfig& config);

/// Returns a thousand texts of random tokens, for runs without data.
LabelledTexts mock_labelled_texts(FinetuneTask task, std::int64_t num_classes,
                                  const Tokenizer& tokenizer);

/// Makes samples of one split of `texts`, which errors call `name`: [CLS] text [SEP], or [CLS] text
/// [SEP] second [SEP], cut to the sequence length. Choices lie one after another in a row. Each
/// epoch of training has an order of its own, which depends on the seed; the others have that of
/// the file. Fields are tokens, types, position_ids, loss_mask (1 at the first position of a
/// sample), document_ids, which keep attention off padding and other choices, class and, with
/// choices, choice_starts.
std::shared_ptr<const SourceDataset> make_labelled_dataset(
    std::shared_ptr<const LabelledTexts> texts, const std::string& name, const SourcePart& part,
    const GptDatasetOptions& options);

}  // namespace megatron
