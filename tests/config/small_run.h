// A run with valid flags, and the error message if more flags are added.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/mistake_of.h"

namespace megatron {

using Args = std::vector<std::string>;

inline Args small(const Args& more) {
  Args words{"gpt",
             "--num-layers",
             "2",
             "--hidden-size",
             "48",
             "--num-attention-heads",
             "6",
             "--seq-length",
             "32",
             "--train-iters",
             "10",
             "--lr",
             "1",
             "--mock-data",
             "--micro-batch-size",
             "2",
             "--tokenizer-type",
             "NullTokenizer",
             "--vocab-size",
             "101"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Returns the error message, or "no error".
inline std::string mistake(const Args& more, std::int64_t world_size = 1) {
  return mistake_of(small(more), world_size);
}

struct BadRun {
  Args words;
  std::int64_t world_size;
  std::string expected;
};

inline void expect_all(const std::vector<BadRun>& table) {
  for (const BadRun& bad : table)
    EXPECT_THAT(mistake(bad.words, bad.world_size), ::testing::HasSubstr(bad.expected))
        << bad.words[0];
}

}  // namespace megatron
