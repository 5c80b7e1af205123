// Expected bytes were written by tensorboard's RecordWriter and Event class (PyPI tensorboard).
#include "megatron/metrics/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/protobuf.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(FramedRecord, IsTensorFlows) {
  EXPECT_EQ(encode_tfrecord("abc"), from_hex("0300000000000000b099490e6162636e57f121"));
}

TEST(Protobuf, EncodesAnEventAsItsClassDoes) {
  const ProtobufWriter value = ProtobufWriter().add_bytes(1, "lm loss").add_float(2, 2.5f);
  const ProtobufWriter event = ProtobufWriter().add_double(1, 1.5).add_integer(2, 300).add_bytes(
      5, ProtobufWriter().add_bytes(1, value.bytes()).bytes());
  EXPECT_EQ(event.bytes(),
            from_hex("09000000000000f83f10ac022a100a0e0a076c6d206c6f73731500002040"));
}

/// Every seven bits take a byte (protobuf's encoding guide, "Base 128 Varints").
TEST(Protobuf, VarintsGrowAtPowersOf128) {
  for (const auto& [value, bytes] :
       {std::pair{127u, "107f"}, {128u, "108001"}, {16383u, "10ff7f"}, {16384u, "10808001"}})
    EXPECT_EQ(ProtobufWriter().add_integer(2, value).bytes(), from_hex(bytes)) << value;
}

TEST(Protobuf, ReaderStopsAtBrokenMessages) {
  const std::string whole = ProtobufWriter().add_integer(2, 300).add_bytes(5, "abc").bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ProtobufReader reader(std::string_view(whole).substr(0, size));
    int fields = 0;
    while (reader.next()) ++fields;
    EXPECT_LT(fields, 2);
  }
  EXPECT_FALSE(ProtobufReader("\x0b").next()) << "a group, which nobody writes any more";
}

class EventFileTest : public testing::Test {
 protected:
  std::vector<EventRecord> records(const fs::path& path) const {
    std::vector<EventRecord> found;
    read_events(path, [&](const EventRecord& record) {
      found.push_back(record);
      return true;
    });
    return found;
  }
  fs::path only_file() const { return fs::directory_iterator(folder_)->path(); }
  void write_iterations(int first, int last) {
    EventFileWriter file(folder_, 10);
    for (int i = first; i <= last; ++i) {
      file.add_scalars({{"lm loss", 1.0 / i}}, i);
      file.add_scalars({{"lm loss vs samples", 1.0 / i}}, std::int64_t{i} * 1000);
    }
    file.flush();
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "run";
};

TEST_F(EventFileTest, HoldsVersionThenPoints) {
  write_iterations(1, 2);
  EXPECT_TRUE(only_file().filename().string().starts_with("events.out.tfevents."));
  const auto found = records(only_file());
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].writer, "megatron");
  EXPECT_EQ(found[3].tags, std::vector<std::string>{"lm loss"});
  EXPECT_EQ(found[4].step, 2000);
}

TEST_F(EventFileTest, QueueIsWrittenWhenFull) {
  EventFileWriter file(folder_, 3);
  const auto empty = fs::file_size(file.path());
  file.add_scalars({{"a", 1}}, 1);
  file.add_scalars({{"a", 1}}, 2);
  EXPECT_EQ(fs::file_size(file.path()), empty);
  file.add_scalars({{"a", 1}}, 3);
  EXPECT_EQ(records(file.path()).size(), 4u);
}

TEST_F(EventFileTest, AFileThatVanishesIsMadeAgain) {
  EventFileWriter file(folder_, 100);
  file.add_scalars({{"lost", 1}}, 1);
  file.flush();
  fs::remove_all(folder_);
  file.add_scalars({{"kept", 1}}, 2);
  file.flush();
  const auto found = records(file.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].writer, "megatron");
  EXPECT_EQ(found[1].tags, std::vector<std::string>{"kept"});
}

/// Creates a link to itself, which behaves like a network file system that does not answer.
TEST_F(EventFileTest, AFolderThatCannotBeLookedAtIsNotMadeAgain) {
  const fs::path aside = folder_.string() + ".aside";
  EventFileWriter file(folder_, 100);
  file.add_scalars({{"first", 1}}, 1);
  file.flush();
  fs::rename(folder_, aside);
  fs::create_symlink(folder_, folder_);
  file.add_scalars({{"second", 1}}, 2);
  file.flush();
  fs::remove(folder_);
  fs::rename(aside, folder_);
  const auto found = records(file.path());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].tags, std::vector<std::string>{"first"});
  EXPECT_EQ(found[2].tags, std::vector<std::string>{"second"});
}

/// Limits the file size of this process to `bytes` during its lifetime, to simulate a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{.rlim_cur = bytes, .rlim_max = limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit limit_{};
  void (*signal_)(int);
};

TEST_F(EventFileTest, AFullDiskCostsOnlyWhatCouldNotBeWritten) {
  EventFileWriter file(folder_, 100);
  {
    const FullDisk full(fs::file_size(file.path()) + 20);  // the limit lies inside the next record
    file.add_scalars({{"lost", 1}}, 1);
    file.flush();
  }
  file.add_scalars({{"kept", 1}}, 2);
  file.flush();
  const auto found = records(file.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].tags, std::vector<std::string>{"kept"});
}

TEST_F(EventFileTest, ResumeDropsWhatComesAgain) {
  write_iterations(1, 4);
  drop_events_after(folder_, 2);
  const auto found = records(only_file());
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found.back().step, 2000);
}

TEST_F(EventFileTest, ResumeDropsATornTailAndLeavesOtherWritersAlone) {
  write_iterations(1, 2);
  const auto whole = fs::file_size(only_file());
  std::ofstream(only_file(), std::ios::app | std::ios::binary)
      << encode_tfrecord("abc").substr(0, 9);
  fs::create_directories(folder_);
  const fs::path other = folder_ / "events.out.tfevents.1.other";
  const ProtobufWriter value = ProtobufWriter().add_bytes(1, "lm loss").add_float(2, 2.5f);
  std::ofstream(other, std::ios::binary)
      << encode_tfrecord(ProtobufWriter()
                             .add_integer(2, 9)
                             .add_bytes(5, ProtobufWriter().add_bytes(1, value.bytes()).bytes())
                             .bytes());
  const auto other_size = fs::file_size(other);
  drop_events_after(folder_, 5);
  EXPECT_EQ(fs::file_size(other), other_size);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path() != other) {
      EXPECT_EQ(entry.file_size(), whole);
    }
  }
}

TEST_F(EventFileTest, DamagedRecordsEndTheReading) {
  write_iterations(1, 3);
  std::string bytes = read_file(only_file());
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);
  std::ofstream(only_file(), std::ios::binary) << bytes;
  EXPECT_EQ(records(only_file()).size(), 6u);
}

TEST_F(EventFileTest, UnwritableFolderIsTheUsersMistake) {
  EXPECT_THROW(EventFileWriter("/dev/null/events", 1), UserError);
}

}  // namespace
}  // namespace megatron
