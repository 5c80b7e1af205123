#include "megatron/base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace megatron {
namespace {

TEST(UserError, ShowsControlCharactersAsEscapes) {
  const UserError error(
      {"a.safetensors: tensor 'w\nfix: none\r\x1b[2J'", std::string("\0\x7f", 2), "rename\tit"});
  EXPECT_EQ(error.parts().what, "a.safetensors: tensor 'w\\nfix: none\\r\\x1b[2J'");
  EXPECT_EQ(error.parts().got, "\\x00\\x7f");
  EXPECT_EQ(error.parts().fix, "rename\\tit");
  EXPECT_STREQ(error.what(),
               "a.safetensors: tensor 'w\\nfix: none\\r\\x1b[2J': \\x00\\x7f\n  fix: rename\\tit");
}

TEST(UserError, KeepsTheLinesOfAListAndCharactersOutsideAscii) {
  const std::string list = "2 problems\n  1. Größe: 3\n     fix: 4\n  2. \u6771";
  EXPECT_EQ(UserError(list).parts().what, list);
}

}  // namespace
}  // namespace megatron
