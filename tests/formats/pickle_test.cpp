#include "megatron/formats/pickle.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(Pickle, OfAnInteger) { EXPECT_EQ(Pickle("K\x03.", "x").root().integer("x"), 3); }

}  // namespace
}  // namespace megatron
