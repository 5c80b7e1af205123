// Known answers of Philox4x32-10 from Random123's kat_vectors (Salmon et al., SC 2011).
#include "megatron/base/philox.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using Block = std::array<std::uint32_t, 4>;

TEST(Philox, MatchesRandom123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The counter and the key are digits of pi.
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BlockIsCounterLowThenOrdinal) {
  EXPECT_EQ(philox_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, HashIsFnv1a) {
  EXPECT_EQ(fnv1a_64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a_64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a_64("foobar"), 0x85944171f73967e8u);
}

TEST(Philox, KeysDifferBySeedAndSite) {
  EXPECT_NE(philox_key(1, "a"), philox_key(2, "a"));
  EXPECT_NE(philox_key(1, "a"), philox_key(1, "b"));
  EXPECT_NE(philox_key(0, "a"), philox_key(1, "a"));
}

}  // namespace
}  // namespace megatron
