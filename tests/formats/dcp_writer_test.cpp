#include "megatron/formats/dcp_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/formats/pickle_writer.h"
#include "megatron/formats/torch_file.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using Extents = std::vector<std::int64_t>;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

/// Returns the bytes of the tensor that a piece holds.
std::string piece_bytes(const fs::path& folder, const DcpTensor& tensor, const DcpPiece& piece) {
  const std::string file = read_file(folder / piece.file);
  const TorchTensor stored =
      read_dcp_tensor(std::as_bytes(std::span(file)), tensor, piece, piece.file);
  EXPECT_TRUE(stored.is_contiguous());
  EXPECT_EQ(stored.bytes().begin % 64, 0u);
  return file.substr(stored.bytes().begin, stored.bytes().size());
}

TEST(PickleWriter, WritesWhatThePickleReaderReads) {
  constexpr std::int64_t kNumbers[] = {0,
                                       255,
                                       256,
                                       -1,
                                       std::numeric_limits<std::int32_t>::min(),
                                       std::int64_t{1} << 31,
                                       std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()};
  const Json object_state = {{"a", pickle_global("torch.float32")},
                             {"b", pickle_global("torch.float32")}};
  const std::string bytes = pickle_of(
      {{"numbers", pickle_tuple(Extents(kNumbers, std::end(kNumbers)))},
       {"list", {nullptr, true, -0.1, "ü"}},
       {"globals", Json::array({pickle_global("torch.int8"), pickle_global("torch.int16")})},
       {"keys", pickle_dict({1, "one", pickle_tuple({2, 3}), Json::array()})},
       {"object", pickle_object("argparse.Namespace", object_state)},
       {"call", pickle_call("torch.Size", Json::array({pickle_tuple({2, 3})}))}});
  EXPECT_EQ(bytes.find("float32"), bytes.rfind("float32"));
  const Pickle pickle(bytes, "it");
  const PickleValue& root = pickle.root();
  EXPECT_EQ(root.at("numbers", "it").integers("it"), Extents(kNumbers, std::end(kNumbers)));
  const auto& list = root.at("list", "it").items("it");
  ASSERT_EQ(list.size(), 4u);
  EXPECT_TRUE(list[0].is(PickleKind::none));
  EXPECT_TRUE(list[1].boolean("it"));
  EXPECT_EQ(list[2].real("it"), -0.1);
  EXPECT_EQ(list[3].text("it"), "ü");
  const auto& globals = root.at("globals", "it").items("it");
  ASSERT_EQ(globals.size(), 2u);
  EXPECT_EQ(globals[1].global_name(), "torch.int16");
  const auto keys = root.at("keys", "it").entries("it");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].key.integer("it"), 1);
  EXPECT_EQ(keys[1].key.integers("it"), (Extents{2, 3}));
  EXPECT_TRUE(keys[1].value.is(PickleKind::list));
  const PickleValue object = root.at("object", "it");
  EXPECT_EQ(object.at("a", "it").global_name(), "torch.float32");
  EXPECT_EQ(object.at("b", "it").global_name(), "torch.float32");
  EXPECT_EQ(root.at("call", "it").integers("it"), (Extents{2, 3}));
}

TEST(TorchFile, WritesTensorsThatCanBeMapped) {
  const TemporaryFolder folder;
  const std::vector<float> values = counted(6);
  FileWriter file(folder / "it.pt");
  write_torch_file(file, torch_tensor({.dtype = *find_torch_dtype("float32"), .shape = {2, 3}}),
                   std::as_bytes(std::span(values)));
  file.close();
  const std::string bytes = read_file(folder / "it.pt");
  const TorchFile read(std::as_bytes(std::span(bytes)), "it.pt");
  const auto tensor = read.tensor(read.root());
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->dtype.name, "float32");
  EXPECT_EQ(tensor->shape, (Extents{2, 3}));
  EXPECT_EQ(tensor->strides, (Extents{3, 1}));
  EXPECT_EQ(tensor->bytes().begin % 64, 0u);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(bytes)).subspan(tensor->bytes().begin, 24),
                                 std::as_bytes(std::span(values))));
}

TEST(DcpWriter, WritesWhatTheReaderReads) {
  const TemporaryFolder folder;
  const std::vector<float> values = counted(24);
  const auto bytes = std::as_bytes(std::span(values));
  DcpWriter writer(folder.path(), /*max_file_bytes=*/2000);
  for (std::int64_t row = 0; row < 2; ++row)
    writer.write("stacked",
                 {.dtype = *find_torch_dtype("float32"),
                  .shape = {2, 4, 3},
                  .pieces = {{.offsets = {row, 0, 0}, .sizes = {1, 4, 3}}}},
                 bytes.subspan(static_cast<std::size_t>(row) * 48, 48));
  writer.write("half",
               {.dtype = *find_torch_dtype("bfloat16"),
                .shape = {48},
                .pieces = {{.offsets = {0}, .sizes = {48}}}},
               bytes);
  writer.write("empty",
               {.dtype = *find_torch_dtype("float64"),
                .shape = {0, 2},
                .pieces = {{.offsets = {0, 0}, .sizes = {0, 2}}}},
               {});
  writer.write_object("state/shard_0_1", Json::array({nullptr}));
  writer.close();

  const DcpMetadata read = read_dcp_metadata(folder.path());
  ASSERT_EQ(read.tensors.size(), 3u);
  const DcpTensor& stacked = read.tensors.at("stacked");
  EXPECT_EQ(stacked.shape, (Extents{2, 4, 3}));
  ASSERT_EQ(stacked.pieces.size(), 2u);
  std::string whole;
  for (const DcpPiece& piece : stacked.pieces) whole += piece_bytes(folder.path(), stacked, piece);
  EXPECT_EQ(std::memcmp(whole.data(), values.data(), bytes.size()), 0);
  const DcpTensor &half = read.tensors.at("half"), &empty = read.tensors.at("empty");
  EXPECT_EQ(half.dtype.name, "bfloat16");
  EXPECT_EQ(piece_bytes(folder.path(), half, half.pieces[0]), whole);
  EXPECT_EQ(piece_bytes(folder.path(), empty, empty.pieces[0]), "");
  const DcpPiece& object = read.objects.at("state/shard_0_1");
  const std::string file = read_file(folder / object.file);
  const TorchFile opened = open_dcp_piece(std::as_bytes(std::span(file)), object, object.file);
  EXPECT_EQ(opened.root().items("it").size(), 1u);
  EXPECT_EQ(stacked.pieces[0].file, "__0_0.distcp");
  EXPECT_NE(object.file, "__0_0.distcp");
}

}  // namespace
}  // namespace megatron
