// How much of which corpus a run takes: tokens, samples and epochs of each source of each split, as
// a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/datasets/dataset.h"

namespace megatron {

struct SplitShare {
  std::string
      split;  ///< "train", "validation", "test", or "validation-name" of one of several sets
  CorpusShare corpus;
};

/// One line for each source under a line of titles; "" for none.
std::string data_table(const std::vector<SplitShare>& shares);

/// [{"split": …, "source": …, "weight": …, "tokens": …, "samples": …, "epochs": …}, …]
OrderedJson data_json(const std::vector<SplitShare>& shares);

}  // namespace megatron
