#include "megatron/datasets/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "datasets/corpus.h"
#include "megatron/base/checksum.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> read(const IndexedDataset& dataset, std::int64_t sequence,
                               std::int64_t offset, std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  dataset.read(sequence, offset, tokens);
  return tokens;
}

TEST(IndexedDataset, WritesTheBytesOfMegatronCore) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", test::small_corpus());
  EXPECT_EQ(md5_hex(test::read_text_file(folder / "a.idx")), "26e0e6a238a29a00ecedd7876d3e2845");
  EXPECT_EQ(md5_hex(test::read_text_file(folder / "a.bin")), "b303ac8a9492b00cfd7f3ebd9fd2acde");
}

class EveryType : public ::testing::TestWithParam<std::tuple<TokenDtype, bool>> {};

TEST_P(EveryType, RoundTrips) {
  const auto [type, mmap] = GetParam();
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{1, 2, 127}, {}, {5}}, type);
  const IndexedDataset dataset(folder / "a", {.mmap = mmap});
  EXPECT_EQ(dataset.type(), type);
  EXPECT_EQ(dataset.num_sequences(), 3);
  EXPECT_EQ(dataset.num_documents(), 3);
  EXPECT_EQ(dataset.num_tokens(), 4);
  EXPECT_THAT(read(dataset, 0, 0, 3), ElementsAre(1, 2, 127));
  EXPECT_THAT(read(dataset, 0, 1, 1), ElementsAre(2));
  EXPECT_THAT(read(dataset, 1, 0, 0), ElementsAre());
  EXPECT_THAT(read(dataset, 2, 0, 1), ElementsAre(5));
}

INSTANTIATE_TEST_SUITE_P(
    Types, EveryType,
    ::testing::Combine(::testing::Values(TokenDtype::uint8, TokenDtype::int8, TokenDtype::int16,
                                         TokenDtype::int32, TokenDtype::int64, TokenDtype::float64,
                                         TokenDtype::float32, TokenDtype::uint16),
                       ::testing::Bool()));

TEST(IndexedDataset, ChoosesTheTypeByVocabulary) {
  EXPECT_EQ(optimal_token_dtype(65499), TokenDtype::uint16);
  EXPECT_EQ(optimal_token_dtype(65500), TokenDtype::int32);
}

TEST(IndexedDatasetBuilder, RefusesIdsThatDoNotFit) {
  TemporaryFolder folder;
  EXPECT_NE(message_of([&] { test::write_corpus(folder / "a", {{70000}}); }).find("token id 70000"),
            std::string::npos);
  EXPECT_NE(message_of([&] { test::write_corpus(folder / "a", {{-1}}); }).find("token id -1"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(IndexedDatasetBuilder, LeavesNoOldIndexBesideNewTokens) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{1, 2}, {3}});
  std::filesystem::remove(folder / "a.bin");  // a folder in its place stops the builder halfway
  std::filesystem::create_directories(folder / "a.bin/in the way");
  EXPECT_ANY_THROW(test::write_corpus(folder / "a", {{4, 5, 6}}));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.idx"));
}

TEST(IndexedDatasetBuilder, JoinsDatasets) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{1, 2}, {3}});
  test::write_corpus(folder / "b", {{4}, {}, {5, 6}});
  test::write_corpus(folder / "whole", {{1, 2}, {3}, {4}, {}, {5, 6}});
  IndexedDatasetBuilder builder(folder / "ab", TokenDtype::uint16);
  builder.add_dataset(IndexedDataset(folder / "a"));
  builder.add_dataset(IndexedDataset(folder / "b"));
  builder.finalize();
  EXPECT_EQ(test::read_text_file(folder / "ab.bin"), test::read_text_file(folder / "whole.bin"));
  EXPECT_EQ(test::read_text_file(folder / "ab.idx"), test::read_text_file(folder / "whole.idx"));
  IndexedDatasetBuilder other(folder / "c", TokenDtype::int32);
  EXPECT_NE(message_of([&] { other.add_dataset(IndexedDataset(folder / "a")); }).find("uint16"),
            std::string::npos);
}

TEST(IndexedDatasetBuilder, KeepsModes) {
  TemporaryFolder folder;
  {
    IndexedDatasetBuilder builder(folder / "m", TokenDtype::int32, /*multimodal=*/true);
    builder.add_document(std::vector<std::int32_t>{1, 2, 3}, std::vector<std::int32_t>{1, 2},
                         std::vector<std::int8_t>{0, 1});
    builder.add_document(std::vector<std::int32_t>{4}, std::vector<std::int32_t>{1});
    builder.finalize();
  }
  const IndexedDataset dataset(folder / "m", {.multimodal = true});
  ASSERT_EQ(dataset.sequence_modes().size(), 3u);
  EXPECT_EQ(dataset.sequence_modes()[1], 1);
  EXPECT_EQ(dataset.sequence_modes()[2], 0);
  EXPECT_EQ(IndexedDataset(folder / "m").num_sequences(), 3);
}

TEST(IndexedDataset, ExplainsMissingFiles) {
  TemporaryFolder folder;
  test::write_corpus(folder / "x_text_document", {{1}});
  EXPECT_NE(message_of([&] { IndexedDataset dataset(folder / "x"); }).find("did you mean"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              IndexedDataset dataset(folder / "x_text_document.bin");
            }).find("leave out the extension"),
            std::string::npos);
  const std::string text = folder.write("labelled.jsonl", "{}\n");
  EXPECT_EQ(message_of([&] { IndexedDataset dataset(text); }),
            "dataset " + text +
                " is a file, not the prefix of a .bin and an .idx file\n  fix: for "
                "text, write them with megatron preprocess-data --input " +
                text + "; for labelled texts of bert add --task, for conversations --sft");
}

struct BrokenIndex {
  const char* name;
  std::function<void(std::string& idx, std::string& bin)> damage;
  const char* message;
};

template <class T>
void put(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// The index has three sequences of two int32 tokens: lengths at byte 34, pointers at 46, document
// indices at 70, end at 102.
const BrokenIndex kBroken[] = {
    {"empty", [](std::string& idx, std::string&) { idx.clear(); }, "truncated header"},
    {"short header", [](std::string& idx, std::string&) { idx.resize(33); }, "truncated header"},
    {"magic", [](std::string& idx, std::string&) { idx[0] = 'X'; }, "MMIDIDX"},
    {"version", [](std::string& idx, std::string&) { put<std::uint64_t>(idx, 9, 2); },
     "'version' must be 1: 2"},
    {"dtype 0", [](std::string& idx, std::string&) { idx[17] = 0; }, "'dtype'"},
    {"dtype 9", [](std::string& idx, std::string&) { idx[17] = 9; }, "'dtype'"},
    {"huge sequences", [](std::string& idx, std::string&) { put<std::uint64_t>(idx, 18, ~0ull); },
     "'sequence_count'"},
    {"huge documents",
     [](std::string& idx, std::string&) { put<std::uint64_t>(idx, 26, ~0ull / 8); },
     "'document_count'"},
    {"no documents", [](std::string& idx, std::string&) { put<std::uint64_t>(idx, 26, 0); },
     "'document_count' must be at least 1"},
    {"fewer sequences", [](std::string& idx, std::string&) { put<std::uint64_t>(idx, 18, 2); },
     "bytes follow the end"},
    {"truncated", [](std::string& idx, std::string&) { idx.resize(idx.size() - 1); }, "truncated"},
    {"extra bytes", [](std::string& idx, std::string&) { idx += "zz"; }, "bytes follow the end"},
    {"first document", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 70, 1); },
     "first document index must be 0"},
    {"last document", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 94, 4); },
     "last document index must be the number of sequences, 3: 4"},
    {"decreasing documents", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 78, 3); },
     "must not decrease"},
    {"negative length", [](std::string& idx, std::string&) { put<std::int32_t>(idx, 38, -5); },
     "length of sequence 1 is negative: -5"},
    {"huge length", [](std::string& idx, std::string&) { put<std::int32_t>(idx, 38, 2147483647); },
     "sequence 1 lies outside"},
    {"negative pointer", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 54, -8); },
     "pointer of sequence 1 is negative"},
    {"huge pointer", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 54, INT64_MAX); },
     "sequence 1 lies outside"},
    {"odd pointer", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 54, 9); },
     "pointer of sequence 1 is not a multiple of the 4 bytes of int32: 9"},
    {"overlapping pointer", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 62, 8); },
     "sequences 1 and 2 overlap: bytes 8 to 15 and bytes 8 to 15 of "},
    {"decreasing pointer", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 62, 0); },
     "sequences 0 and 2 overlap: bytes 0 to 7 and bytes 0 to 7 of "},
    {"gap", [](std::string& idx, std::string&) { put<std::int32_t>(idx, 34, 1); },
     "its 3 sequences cover 20 bytes of "},
    {"late start", [](std::string& idx, std::string&) { put<std::int64_t>(idx, 46, 4); },
     "sequences 0 and 1 overlap: bytes 4 to 11 and bytes 8 to 15 of "},
    {"shorter last sequence", [](std::string& idx, std::string&) { put<std::int32_t>(idx, 42, 1); },
     "its 3 sequences cover 20 bytes of "},
    {"long bin", [](std::string&, std::string& bin) { bin += "1234"; }, "that file has 28"},
    {"odd bin", [](std::string&, std::string& bin) { bin += "1"; }, "that file has 25"},
    {"short bin", [](std::string&, std::string& bin) { bin.resize(20); },
     "sequence 2 lies outside"},
    {"empty bin", [](std::string&, std::string& bin) { bin.clear(); }, "lies outside"},
};

TEST(IndexedDataset, RefusesBrokenFiles) {
  TemporaryFolder folder;
  test::write_corpus(folder / "good", {{1, 2}, {3, 4}, {5, 6}}, TokenDtype::int32);
  for (const BrokenIndex& broken : kBroken) {
    std::string idx = test::read_text_file(folder / "good.idx"),
                bin = test::read_text_file(folder / "good.bin");
    ASSERT_EQ(idx.size(), 102u);
    broken.damage(idx, bin);
    test::write_text_file(folder / "bad.idx", idx);
    test::write_text_file(folder / "bad.bin", bin);
    const std::string error = message_of([&] { IndexedDataset(folder / "bad").check(); });
    EXPECT_NE(error.find(broken.message), std::string::npos) << broken.name << ": " << error;
    EXPECT_NE(error.find("bad.idx"), std::string::npos) << broken.name << ": " << error;
    const bool has_fix = error.find("fix: copy the dataset again") != std::string::npos ||
                         error.find("fix: make both again") != std::string::npos;
    EXPECT_TRUE(has_fix) << broken.name << ": " << error;
  }
}

/// A dataset of [1, 2], [3, 4], [5, 6] whose index `edit` changes.
std::string edited_dataset(const TemporaryFolder& folder,
                           const std::function<void(std::string& idx)>& edit) {
  test::write_corpus(folder / "all", {{1, 2}, {3, 4}, {5, 6}}, TokenDtype::int32);
  std::string idx = test::read_text_file(folder / "all.idx");
  edit(idx);
  test::write_text_file(folder / "all.idx", idx);
  return folder / "all";
}

TEST(IndexedDataset, ReadsAnIndexOfAnotherOrder) {
  TemporaryFolder folder;
  const std::string prefix = edited_dataset(folder, [](std::string& idx) {
    put<std::int64_t>(idx, 46, 16);
    put<std::int64_t>(idx, 62, 0);
  });
  const IndexedDataset dataset(prefix);
  dataset.check();
  EXPECT_THAT(read(dataset, 0, 0, 2), ElementsAre(5, 6));
  EXPECT_THAT(read(dataset, 2, 0, 2), ElementsAre(1, 2));
}

TEST(IndexedDataset, MergingTakesAPartOfABinFileOut) {
  TemporaryFolder folder;
  const std::string prefix =
      edited_dataset(folder, [](std::string& idx) { put<std::int32_t>(idx, 38, 1); });
  EXPECT_NE(message_of([&] { IndexedDataset(prefix).check(); }).find("cover 20 bytes"),
            std::string::npos);
  IndexedDatasetBuilder builder(folder / "part", TokenDtype::int32);
  builder.add_dataset(IndexedDataset(prefix, {.partial = true}));
  builder.finalize();
  const IndexedDataset part(folder / "part");
  part.check();
  EXPECT_THAT(read(part, 1, 0, 1), ElementsAre(3));
  EXPECT_THAT(read(part, 2, 0, 2), ElementsAre(5, 6));
}

TEST(IndexedDataset, OpeningReadsOnlyTheEndsOfTheIndex) {
  TemporaryFolder folder;
  const std::string prefix =
      edited_dataset(folder, [](std::string& idx) { put<std::int64_t>(idx, 54, 9); });
  const IndexedDataset dataset(prefix);
  EXPECT_THAT(read(dataset, 0, 0, 2), ElementsAre(1, 2));
  EXPECT_NE(message_of([&] { read(dataset, 1, 0, 2); }).find("not a multiple of the 4 bytes"),
            std::string::npos);
  EXPECT_NE(message_of([&] { dataset.check(); }).find("not a multiple of the 4 bytes"),
            std::string::npos);
}

TEST(IndexedDataset, AnIndexOfEmptyDocumentsNeedsAnEmptyBin) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{}, {}});
  EXPECT_EQ(IndexedDataset(folder / "a").num_documents(), 2);
  test::write_text_file(folder / "a.bin", "12");
  EXPECT_NE(message_of([&] { IndexedDataset dataset(folder / "a"); }).find("cover 0 bytes"),
            std::string::npos);
}

TEST(IndexedDataset, ChecksEveryAccess) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{1, 2}, {3, 4}, {5, 6}}, TokenDtype::int32);
  const IndexedDataset dataset(folder / "a");
  EXPECT_THAT(read(dataset, 1, 0, 2), ElementsAre(3, 4));
  const std::int64_t pointer = 1000;  // writes to the open file, as an in-place copy does
  std::fstream(folder / "a.idx", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(54)
      .write(reinterpret_cast<const char*>(&pointer), sizeof pointer);
  EXPECT_THAT(read(dataset, 0, 0, 2), ElementsAre(1, 2));
  EXPECT_NE(message_of([&] { read(dataset, 1, 0, 2); }).find("sequence 1 lies outside"),
            std::string::npos);
}

TEST(IndexedDataset, RefusesRealNumbers) {
  TemporaryFolder folder;
  test::write_corpus(folder / "a", {{1, 2}}, TokenDtype::float32);
  std::string bin = test::read_text_file(folder / "a.bin");
  put<float>(bin, 4, 0.5f);
  test::write_text_file(folder / "a.bin", bin);
  EXPECT_NE(message_of([&] { read(IndexedDataset(folder / "a"), 0, 0, 2); }).find("not token ids"),
            std::string::npos);
}

}  // namespace
}  // namespace megatron
