#include "megatron/ops/offload_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <random>

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"

namespace megatron {
namespace {

enum class Place { file, host_memory };

class OffloadStoreTest : public ::testing::TestWithParam<Place> {
 protected:
  std::unique_ptr<OffloadStore> make_store() {
    if (GetParam() == Place::host_memory) return make_host_offload_store(c10::kCPU);
    return make_file_offload_store(std::make_shared<OffloadFile>(
        OffloadFile::Options{.folder = std::filesystem::temp_directory_path()}));
  }
};

TEST_P(OffloadStoreTest, ReturnsTheBitsInAnyOrder) {
  const std::unique_ptr<OffloadStore> store = make_store();
  std::mt19937 random(3);
  std::vector<std::pair<at::Tensor, std::unique_ptr<OffloadedTensor>>> stored;
  for (int step = 0; step < 300; ++step) {
    if (stored.size() < 8) {
      const auto rows = static_cast<std::int64_t>(random() % 300);
      const at::Tensor tensor = at::randint(0, 1 << 15, {rows, 33})
                                    .to(step % 3 == 0   ? at::kBFloat16
                                        : step % 3 == 1 ? at::kFloat
                                                        : at::kLong);
      stored.emplace_back(tensor.clone(), store->put(tensor));
      continue;
    }
    const std::size_t index = random() % stored.size();
    if (random() % 2 == 0) {
      stored[index].second->prefetch();
      continue;
    }
    if (random() % 4 != 0) {  // else dropped unread
      const at::Tensor found = stored[index].second->get();
      ASSERT_EQ(found.dtype(), stored[index].first.dtype());
      ASSERT_TRUE(at::equal(found, stored[index].first));
    }
    stored.erase(stored.begin() + static_cast<std::ptrdiff_t>(index));
  }
  EXPECT_GT(store->statistics().peak_stored_bytes, 0);
  stored.clear();
  EXPECT_EQ(store->statistics().stored_bytes, 0);
}

TEST_P(OffloadStoreTest, ReadsAgainAndAgainUntilItIsTaken) {
  const std::unique_ptr<OffloadStore> store = make_store();
  const at::Tensor tensor = at::arange(300'000);
  const std::unique_ptr<OffloadedTensor> stored = store->put(tensor.clone());
  for (int i = 0; i < 4; ++i) {
    if (i % 2 == 1) stored->prefetch();
    EXPECT_TRUE(at::equal(stored->read(), tensor)) << i;
    EXPECT_EQ(store->statistics().stored_bytes, tensor.nbytes());
  }
  EXPECT_TRUE(at::equal(stored->get(), tensor));
  EXPECT_EQ(store->statistics().stored_bytes, 0);
}

TEST_P(OffloadStoreTest, ReadsIntoTheMemoryItIsGiven) {
  const std::unique_ptr<OffloadStore> store = make_store();
  const at::Tensor tensor = at::arange(1000), buffer = at::empty({3000}, tensor.options());
  const std::unique_ptr<OffloadedTensor> stored = store->put(tensor.clone());
  stored->read();  // a copy to a file has ended now, so nothing is in memory still
  for (int attempt = 0;; ++attempt) {
    ASSERT_LT(attempt, 100'000) << "it is read into other memory";
    const at::Tensor place = buffer.narrow(0, 1000, 1000);
    stored->prefetch(place);
    const at::Tensor found = stored->read();
    ASSERT_TRUE(at::equal(found, tensor));
    if (found.data_ptr() == place.data_ptr()) break;  // else the copy's owner was not dropped yet
  }
}

TEST_P(OffloadStoreTest, TheHandleMayOutliveTheStore) {
  std::unique_ptr<OffloadStore> store = make_store();
  const at::Tensor tensor = at::arange(100'000);
  const std::unique_ptr<OffloadedTensor> handle = store->put(tensor);
  store.reset();
  EXPECT_TRUE(at::equal(handle->get(), tensor));
  EXPECT_THROW(handle->get(), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Places, OffloadStoreTest,
                         ::testing::Values(Place::file, Place::host_memory), [](const auto& info) {
                           return info.param == Place::file ? "File" : "HostMemory";
                         });

/// A disk on which writes wait until they are allowed, and then fail if they are told to.
struct HeldDisk : OffloadFileCalls {
  std::atomic<bool> held{false}, is_full{false}, is_broken{false};
  ssize_t write(int descriptor, const void* data, std::size_t size, std::uint64_t offset) override {
    while (held) std::this_thread::yield();
    if (!is_full) return OffloadFileCalls::write(descriptor, data, size, offset);
    errno = ENOSPC;
    return -1;
  }
  ssize_t read(int descriptor, void* data, std::size_t size, std::uint64_t offset) override {
    if (!is_broken) return OffloadFileCalls::read(descriptor, data, size, offset);
    errno = EIO;
    return -1;
  }
};

std::shared_ptr<OffloadFile> make_file(HeldDisk& disk) {
  return std::make_shared<OffloadFile>(OffloadFile::Options{
      .folder = std::filesystem::temp_directory_path(), .num_threads = 1, .calls = &disk});
}

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

WeakStorage memory_of(const at::Tensor& tensor) {
  return WeakStorage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

TEST(FileOffloadStoreTest, ReleasesTheMemoryWhenTheCopyIsDone) {
  HeldDisk disk;
  const auto file = make_file(disk);
  const std::unique_ptr<OffloadStore> store = make_file_offload_store(file);
  at::Tensor tensor = at::arange(100'000);
  const WeakStorage memory = memory_of(tensor);
  disk.held = true;
  const std::unique_ptr<OffloadedTensor> handle = store->put(std::move(tensor));
  tensor.reset();
  EXPECT_FALSE(memory.expired());
  disk.held = false;
  while (!memory.expired()) std::this_thread::yield();
  EXPECT_TRUE(at::equal(handle->get(), at::arange(100'000)));
}

TEST(FileOffloadStoreTest, TakesWhatIsStillInMemoryWithoutReading) {
  HeldDisk disk;
  const auto file = make_file(disk);
  const std::unique_ptr<OffloadStore> store = make_file_offload_store(file);
  disk.held = true;
  const auto first = store->put(at::arange(1000)), second = store->put(at::arange(2000));
  EXPECT_TRUE(at::equal(second->get(), at::arange(2000)));  // its write had not begun
  first->prefetch();
  disk.held = false;
  EXPECT_TRUE(at::equal(first->get(), at::arange(1000)));
  EXPECT_EQ(store->statistics().read_bytes, 0);
}

TEST(FileOffloadStoreTest, AFullDiskReachesWhoGets) {
  HeldDisk disk;
  const auto file = make_file(disk);
  const std::unique_ptr<OffloadStore> store = make_file_offload_store(file);
  disk.is_full = true;
  at::Tensor tensor = at::arange(1000);
  const WeakStorage memory = memory_of(tensor);
  const auto handle = store->put(std::move(tensor));
  tensor.reset();
  while (!memory.expired()) std::this_thread::yield();
  EXPECT_THROW(
      {
        handle->prefetch();
        handle->get();
      },
      UserError);
}

// Backward reads what forward offloaded: the error names the folder.
TEST(FileOffloadStoreTest, AReadErrorReachesWhoReads) {
  HeldDisk disk;
  const auto file = make_file(disk);
  const std::unique_ptr<OffloadStore> store = make_file_offload_store(file);
  at::Tensor tensor = at::arange(1000);
  const WeakStorage memory = memory_of(tensor);
  const auto handle = store->put(std::move(tensor));
  tensor.reset();
  while (!memory.expired()) std::this_thread::yield();
  disk.is_broken = true;
  for (const auto& read : {&OffloadedTensor::read, &OffloadedTensor::get}) {
    try {
      (handle.get()->*read)();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(file->folder().string()), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace megatron
