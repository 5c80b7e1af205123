#include "megatron/params/offloaded_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "megatron/base/offload_file.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

constexpr std::int64_t kSize = 3000;

class OffloadedValuesTest : public testing::Test {
 protected:
  OffloadedValuesTest() {
    for (const std::size_t bucket : {0U, 1U}) values_.add(bucket, kSize, options_);
  }
  std::int64_t written() const { return store_->statistics().written_bytes; }
  at::Tensor numbers(std::int64_t first) const {
    return at::arange(first, first + kSize, options_);
  }

  at::TensorOptions options_{at::kFloat};
  TemporaryFolder folder_;
  std::shared_ptr<OffloadStore> store_ = make_file_offload_store(
      std::make_shared<OffloadFile>(OffloadFile::Options{.folder = folder_.path()}));
  OffloadedValues values_{store_};
};

TEST_F(OffloadedValuesTest, BeginAsZeros) {
  EXPECT_TRUE(at::equal(values_.read(0), at::zeros({kSize}, options_)));
  EXPECT_TRUE(at::equal(values_.take(1), at::zeros({kSize}, options_)));
}

TEST_F(OffloadedValuesTest, ChangesOfOneBucketAreWrittenOnce) {
  for (std::int64_t i = 0; i < 10; ++i) {
    at::Tensor values = values_.take(0);
    values[i] = i + 1;
    values_.put(0, values);
  }
  EXPECT_EQ(written(), 0);
  values_.put(1, numbers(7));
  EXPECT_EQ(written(), 4 * kSize);
  const at::Tensor first = values_.read(0);
  EXPECT_EQ(written(), 2 * 4 * kSize) << "reading ends the changes of the other bucket";
  EXPECT_TRUE(at::equal(first.narrow(0, 0, 10), at::arange(1, 11, options_)));
  EXPECT_TRUE(at::equal(values_.take(1), numbers(7)));
}

TEST_F(OffloadedValuesTest, ReadingAheadEndsWithTheRead) {
  values_.prefetch(1);
  EXPECT_FALSE(values_.is_read_ahead(1)) << "zeros are not read";
  values_.put(0, numbers(1));
  values_.prefetch(0);
  EXPECT_TRUE(values_.is_read_ahead(0));
  EXPECT_TRUE(at::equal(values_.read(0), numbers(1)));
  EXPECT_FALSE(values_.is_read_ahead(0));
}

TEST_F(OffloadedValuesTest, PeekSeesWhatWasPut) {
  values_.put(0, numbers(1));
  EXPECT_TRUE(at::equal(values_.peek(0), numbers(1)));
  values_.put(0, at::full({kSize}, 5, options_));
  EXPECT_TRUE(at::equal(values_.peek(0), at::full({kSize}, 5, options_)));
  EXPECT_TRUE(at::equal(values_.peek(1), at::zeros({kSize}, options_)));
}

TEST_F(OffloadedValuesTest, APrefetchedBucketMayBeTaken) {
  values_.put(0, numbers(3));
  values_.prefetch(0);
  at::Tensor values = values_.take(0);
  EXPECT_TRUE(at::equal(values, numbers(3)));
  values_.put(0, values + 1);
  EXPECT_TRUE(at::equal(values_.read(0), numbers(4)));
}

}  // namespace
}  // namespace megatron
