#include "megatron/formats/dcp_metadata.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "formats/fixtures.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using Extents = std::vector<std::int64_t>;

/// Returns the elements of a tensor of at most three axes, put together from its pieces.
std::string elements(const fs::path& folder, const DcpTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
  std::string values(count * tensor.dtype.element_size, '?');
  const auto padded = [](Extents extents, std::int64_t with) {
    extents.insert(extents.begin(), 3 - extents.size(), with);
    return extents;
  };
  const Extents shape = padded(tensor.shape, 1);
  for (const DcpPiece& piece : tensor.pieces) {
    const std::string file = read_file(folder / piece.file);
    const TorchTensor stored =
        read_dcp_tensor(std::as_bytes(std::span(file)), tensor, piece, piece.file);
    EXPECT_GE(stored.bytes().begin, piece.bytes.begin);
    EXPECT_LE(stored.bytes().end, piece.bytes.end);
    const Extents at = padded(piece.offsets, 0), size = padded(piece.sizes, 1),
                  strides = padded(stored.strides, 0);
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j)
        for (std::int64_t k = 0; k < size[2]; ++k) {
          const std::int64_t to = ((at[0] + i) * shape[1] + at[1] + j) * shape[2] + at[2] + k,
                             from = stored.storage_offset + i * strides[0] + j * strides[1] +
                                    k * strides[2];
          const std::uint64_t bytes = tensor.dtype.element_size;
          values.replace(static_cast<std::uint64_t>(to) * bytes, bytes, file,
                         stored.storage.begin + static_cast<std::uint64_t>(from) * bytes, bytes);
        }
  }
  return values;
}

void expect_tensors(const std::string& name, const DcpMetadata& metadata) {
  for (const auto& expected : nlohmann::json::parse(read_file(fixture(name + ".json")))) {
    const std::string key = expected["name"];
    SCOPED_TRACE(key);
    ASSERT_TRUE(metadata.tensors.contains(key));
    const DcpTensor& tensor = metadata.tensors.at(key);
    EXPECT_EQ(tensor.dtype.name, expected["dtype"].get<std::string>());
    EXPECT_EQ(tensor.shape, expected["shape"].get<Extents>());
    EXPECT_EQ(to_hex(elements(fixture(name), tensor)), expected["hex"].get<std::string>());
  }
}

PickleValue item(const PickleValue& list) { return list.items("it").at(0); }

TEST(DcpMetadata, ReadsACheckpointOfTorch) {
  const DcpMetadata metadata = read_dcp_metadata(fixture("dcp"));
  EXPECT_EQ(metadata.tensors.size(), 4U);
  expect_tensors("dcp", metadata);
  const DcpPiece& step = metadata.objects.at("step");
  const std::string file = read_file(fixture("dcp") / step.file);
  const TorchFile object = open_dcp_piece(std::as_bytes(std::span(file)), step, step.file);
  EXPECT_EQ(object.root().integer("step"), 3);
}

TEST(DcpMetadata, ReadsTheNamesOfOlderVersions) {
  const DcpMetadata metadata = parse_dcp_metadata(read_file(fixture("old_index.pkl")), "old");
  EXPECT_EQ(metadata.objects.size(), read_dcp_metadata(fixture("dcp")).objects.size());
  expect_tensors("dcp", metadata);
}

TEST(DcpMetadata, ReadsACheckpointOfMegatronCore) {
  const fs::path folder = fixture("torch_dist");
  const DcpMetadata metadata = read_dcp_metadata(folder);
  expect_tensors("torch_dist", metadata);
  EXPECT_EQ(metadata.tensors.begin()->second.pieces.size(), 4U);
  int num_parts = 0;
  for (const auto& [name, piece] : metadata.objects) {
    if (!name.starts_with("rng_state/shard_0.")) continue;
    const std::string file = read_file(folder / piece.file);
    const TorchFile part = open_dcp_piece(std::as_bytes(std::span(file)), piece, piece.file);
    EXPECT_EQ(item(item(part.root())).at("seed", "it").integer("seed"),
              name == "rng_state/shard_0.0_1.2" ? 0 : 1);
    ++num_parts;
  }
  EXPECT_EQ(num_parts, 2);
  const auto format = read_megatron_folder_format(folder);
  ASSERT_TRUE(format);
  EXPECT_EQ(format->sharded_backend, "torch_dist");
  EXPECT_EQ(format->sharded_backend_version, 1);
  EXPECT_EQ(format->common_backend, "torch");
  const std::string common = read_file(folder / "common.pt");
  const TorchFile file(std::as_bytes(std::span(common)), "common.pt");
  EXPECT_EQ(file.root().at("iteration", "it").integer("it"), 5);
  EXPECT_EQ(file.root().at("args", "it").at("num_layers", "it").integer("it"), 2);
  EXPECT_FALSE(read_megatron_folder_format(fixture("dcp")));
}

/// The index with another text in place of one of the same length.
std::string replaced(const std::string& old, const std::string& now) {
  std::string text = read_file(fixture("dcp") / ".metadata");
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(DcpMetadata, NamesWhatIsWrong) {
  const auto refuse = [](const std::string& index, std::vector<std::string> words) {
    words.push_back("x/.metadata");
    expect_user_error([&] { parse_dcp_metadata(index, "x/.metadata"); }, words, words[0]);
  };
  refuse("N.", {"not the index of a distributed checkpoint", "None"});
  refuse("cos\nsystem\n(S'id'\ntR.", {"not the index", "os.system"});
  refuse(replaced("__0_0.distcp", "../../secret"), {"outside", "'../../secret'"});
  refuse(replaced("__0_0.distcp", "/etc/shadow1"), {"outside", "'/etc/shadow1'"});
  refuse(replaced("storage_data", "storage_dat_"), {"has no 'storage_data'"});
  refuse(replaced("bfloat16", "bfloat_x"), {"dtype is not supported", "bfloat_x", "'b'"});
  refuse(replaced("TensorStorageMetadata", "TensorStorageMetadat_"),
         {"neither a tensor nor bytes"});
  refuse(replaced("relative_path", "relative_pat_"), {"has no 'relative_path'"});
}

TEST(DcpMetadata, RefusesPiecesThatAreNotThere) {
  DcpMetadata metadata = read_dcp_metadata(fixture("dcp"));
  DcpTensor& tensor = metadata.tensors.at("w");
  const std::string file = read_file(fixture("dcp") / tensor.pieces.at(0).file);
  const auto bytes = std::as_bytes(std::span(file));
  DcpPiece piece = tensor.pieces[0];
  piece.bytes.end = file.size() + 1;
  expect_user_error([&] { read_dcp_tensor(bytes, tensor, piece, "f"); },
                    {"f", "ends behind the file"});
  piece = tensor.pieces[0];
  piece.sizes = {4, 3};
  expect_user_error([&] { read_dcp_tensor(bytes, tensor, piece, "f"); },
                    {"does not hold the tensor", "float32 [3, 4]"});
  piece = tensor.pieces[0];
  piece.transforms = {"zstd"};
  expect_user_error([&] { read_dcp_tensor(bytes, tensor, piece, "f"); },
                    {"f", "compressed", "zstd"});
  piece = metadata.objects.at("step");
  expect_user_error([&] { read_dcp_tensor(bytes, tensor, piece, "f"); }, {"the integer 3"});
}

TEST(DcpMetadata, SurvivesTruncationAndDamage) {
  std::mt19937 random(1);
  for (const std::string name : {"dcp", "torch_dist"}) {
    const std::string index = read_file(fixture(name) / ".metadata");
    for (std::size_t size = 0; size < index.size(); ++size)
      EXPECT_THROW(parse_dcp_metadata(index.substr(0, size), "x"), UserError) << size;
    for (int round = 0; round < 3000; ++round) {
      try {
        parse_dcp_metadata(mutate(index, random), "x");
      } catch (const UserError&) {  // expected of a damaged index; anything else is a bug
      }
    }
  }
}

TEST(MegatronFolderFormat, NamesTheFieldThatIsWrong) {
  const TemporaryFolder folder;
  write_file(folder / "metadata.json", R"({"sharded_backend": 3})");
  expect_user_error([&] { read_megatron_folder_format(folder.path()); },
                    {"metadata.json", "sharded_backend"});
}

}  // namespace
}  // namespace megatron
