// RFC 3720, appendix B.4.
#include <gtest/gtest.h>

#include <string>

#include "megatron/base/checksum.h"

namespace megatron {
namespace {

TEST(Crc32c, HasTheValuesOfTheStandard) {
  std::string ascending(32, '\0'), descending(32, '\0');
  for (int i = 0; i < 32; ++i) {
    ascending[static_cast<std::size_t>(i)] = static_cast<char>(i);
    descending[static_cast<std::size_t>(31 - i)] = static_cast<char>(i);
  }
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(descending), 0x113fdb5cu);
}

}  // namespace
}  // namespace megatron
