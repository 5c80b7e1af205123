// What preprocess() refuses before it reads or writes anything.
#pragma once

#include <string>
#include <vector>

#include "megatron/datasets/preprocess.h"

namespace megatron {

/// Returns the prefix of the dataset of one key: PREFIX_KEY_document or PREFIX_KEY_sentence.
std::string dataset_prefix(const PreprocessOptions& options, const std::string& key);

/// Returns the files of the inputs. Folders and globs may hold files that an earlier run of the
/// same command has written, which are no input.
std::vector<std::string> input_files(const PreprocessOptions& options);

/// Throws a UserError if the options contradict each other or the files of the inputs.
void check_preprocessing(const PreprocessOptions& options, const std::vector<std::string>& files);

}  // namespace megatron
