#include "megatron/formats/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "formats/fixtures.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Returns the elements in row-major order.
std::string elements(const TorchTensor& tensor, const std::string& file) {
  std::string values;
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  for (std::int64_t count = 0; count < tensor.num_elements(); ++count) {
    std::int64_t element = tensor.storage_offset;
    for (std::size_t dim = 0; dim < index.size(); ++dim)
      element += index[dim] * tensor.strides[dim];
    const std::uint64_t begin =
        tensor.storage.begin + static_cast<std::uint64_t>(element) * tensor.dtype.element_size;
    EXPECT_GE(begin, tensor.bytes().begin);
    EXPECT_LE(begin + tensor.dtype.element_size, tensor.bytes().end);
    values += file.substr(begin, tensor.dtype.element_size);
    for (std::size_t dim = index.size(); dim-- > 0;) {
      if (++index[dim] < tensor.shape[dim]) break;
      index[dim] = 0;
    }
  }
  return values;
}

const std::vector<std::string> kFiles{"views.pt",        "dtypes.pt",        "model.pt",
                                      "views_legacy.pt", "dtypes_legacy.pt", "model_legacy.pt"};

TEST(TorchFile, FindsTheTensorsThatTorchSaved) {
  const auto all = nlohmann::json::parse(read_file(fixture("torch_files.json")));
  for (const std::string& name : kFiles) {
    SCOPED_TRACE(name);
    const std::string content = read_file(fixture(name));
    const TorchFile file(as_bytes(content), name);
    const std::vector<NamedTensor> found = file.tensors(file.root());
    ASSERT_EQ(found.size(), all[name].size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto& expected = all[name][i];
      const TorchTensor& tensor = found[i].tensor;
      SCOPED_TRACE(found[i].name);
      EXPECT_EQ(found[i].name, expected["name"].get<std::string>());
      EXPECT_EQ(tensor.dtype.name, expected["dtype"].get<std::string>());
      EXPECT_EQ(tensor.shape, expected["shape"].get<std::vector<std::int64_t>>());
      EXPECT_EQ(tensor.strides, expected["strides"].get<std::vector<std::int64_t>>());
      EXPECT_EQ(tensor.storage_offset, expected["offset"].get<std::int64_t>());
      EXPECT_EQ(to_hex(elements(tensor, content)), expected["hex"].get<std::string>());
    }
  }
}

TEST(TorchFile, DescribesViewsOfOneStorage) {
  const std::string content = read_file(fixture("views.pt"));
  const TorchFile file(as_bytes(content), "views.pt");
  const auto tensor = [&](const std::string& name) {
    return *file.tensor(*file.root().find(name));
  };
  EXPECT_EQ(tensor("part").storage, tensor("whole").storage);
  EXPECT_EQ(tensor("part").bytes().begin, tensor("whole").bytes().begin + 16);
  EXPECT_EQ(tensor("part").bytes().size(), 24U);
  EXPECT_TRUE(tensor("part").is_contiguous());
  EXPECT_FALSE(tensor("transposed").is_contiguous());
  EXPECT_FALSE(tensor("expanded").is_contiguous());
  EXPECT_EQ(tensor("expanded").bytes().size(), 4U);
  EXPECT_EQ(tensor("scalar").num_elements(), 1);
  EXPECT_EQ(tensor("empty").bytes().size(), 0U);
  EXPECT_TRUE(tensor("empty").is_contiguous());
  EXPECT_FALSE(file.tensor(*file.root().find("nested")));
}

TEST(TorchFile, ReadsWhatIsNoTensor) {
  for (const std::string name : {"model.pt", "model_legacy.pt"}) {
    SCOPED_TRACE(name);
    const std::string content = read_file(fixture(name));
    const TorchFile file(as_bytes(content), name);
    const PickleValue& root = file.root();
    const PickleValue args = root.at("args", "it");
    EXPECT_TRUE(args.is_object_of("argparse.Namespace"));
    EXPECT_EQ(args.at("num_layers", "args").integer("num_layers"), 2);
    EXPECT_EQ(args.at("lr", "args").real("lr"), 1.5e-4);
    EXPECT_EQ(find_torch_dtype(args.at("params_dtype", "args").global_name())->name, "bfloat16");
    const PickleValue backend = args.at("attention_backend", "args");
    EXPECT_TRUE(backend.is_object_of("__main__.Backend"));
    EXPECT_EQ(backend.args().items("it")[0].integer("it"), 5);
    EXPECT_EQ(args.at("data_path", "args").items("it")[1].text("it"), "b");
    EXPECT_TRUE(args.at("seed", "args").is(PickleKind::none));
    EXPECT_EQ(root.at("checkpoint_version", "it").real("it"), 3.0);
    EXPECT_EQ(root.at("size", "it").integers("it"), (std::vector<std::int64_t>{4, 5}));
  }
}

TEST(TorchFile, CountsRangesFromTheWholeFile) {
  const std::string content = read_file(fixture("views.pt")), whole = "1234567" + content;
  const TorchFile file(as_bytes(whole).subspan(7), "part", 7);
  const NamedTensor first = file.tensors(file.root()).at(0);
  EXPECT_EQ(elements(first.tensor, whole).substr(4, 4), std::string("\0\0\x80\x3f", 4));
}

/// The file with another text in place of one of the same length.
std::string replaced(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  EXPECT_EQ(old.size(), now.size());
  return text.replace(at, old.size(), now);
}

TEST(TorchFile, NamesWhatIsWrong) {
  const std::string zip = read_file(fixture("views.pt")),
                    old = read_file(fixture("views_legacy.pt"));
  const auto refuse = [](const std::string& content, std::vector<std::string> words) {
    words.push_back("x.pt");
    expect_user_error(
        [&] {
          const TorchFile file(as_bytes(content), "x.pt");
          file.tensors(file.root());
        },
        words, words[0]);
  };
  refuse("", {"not a file of torch.save"});
  refuse("hello", {"not a file of torch.save"});
  refuse("\x80\x02N.", {"another pickle"});
  refuse(zip.substr(0, zip.size() - 1), {"its end is missing"});
  refuse(zip.substr(0, 100), {"its end is missing"});
  refuse(old.substr(0, old.size() - 1), {"storage", "not complete"});
  refuse(replaced(zip, "littlePK", "bigxxxPK"), {"byte order", "'bigxxx'"});
  refuse(replaced(zip, "torch\nFloatStorage", "torch\nQInt8Storage"), {"QInt8Storage"});
  refuse(replaced(zip, "_rebuild_tensor_v2", "_rebuild_qtensorXX"), {"_rebuild_qtensorXX"});
  // K\x18: the storage of 24 elements.
  refuse(replaced(zip, std::string("cpuq\6K\x18", 7), std::string("cpuq\6K\x19", 7)),
         {"storage '0'", "96 bytes"});
  refuse(replaced(zip, "storage", "storagf"), {"must be 'storage'"});
}

TEST(TorchFile, RefusesTensorsOutsideOfTheirStorage) {
  // Pickles of one tensor of a storage of 8 floats, in the older format, which has no directory.
  const auto file_of = [](const std::string& offset, const std::string& shape,
                          const std::string& strides) {
    const std::string magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15),
        floats = std::string("\x08\0\0\0\0\0\0\0", 8) + std::string(32, 'x');
    return magic + "I1001\n.}." +
           "ctorch._utils\n_rebuild_tensor\n((Vstorage\nctorch\nFloatStorage\n" +
           "Vkey\nVcpu\nI8\ntQ" + offset + shape + strides + "tR." + "(Vkey\nl." + floats;
  };
  const auto read = [&](const std::string& content) {
    const TorchFile file(as_bytes(content), "x.pt");
    return *file.tensor(file.root());
  };
  EXPECT_EQ(read(file_of("I0\n", "(I2\nI4\nt", "(I4\nI1\nt")).bytes().size(), 32U);
  EXPECT_EQ(read(file_of("I7\n", "(I9\nt", "(I0\nt")).bytes().size(), 4U);
  EXPECT_EQ(read(file_of("I9\n", "(I0\nt", "(I1\nt")).bytes().size(), 0U);
  const std::string large = "I4611686018427387904\n";
  for (const std::string& content :
       {file_of("I1\n", "(I2\nI4\nt", "(I4\nI1\nt"), file_of("I8\n", "(I1\nt", "(I1\nt"),
        file_of("I0\n", "(I2\nt", "(I8\nt")})
    expect_user_error([&] { read(content); }, {"x.pt", "outside of its storage 'key'"});
  for (const std::string& content :
       {file_of("I0\n", "(I-1\nt", "(I1\nt"), file_of("I0\n", "(I2\nt", "(I-1\nt"),
        file_of("I0\n", "(" + large + large + "t", "(I0\nI0\nt"),
        file_of("I0\n", "(" + large + large + "I0\nt", "(I0\nI0\nI0\nt"),
        file_of("I0\n", "(I3\nt", "(" + large + "t")})
    expect_user_error([&] { read(content); }, {"x.pt", "negative or too large"});
  expect_user_error([&] { read(file_of("I0\n", "(I1\nI1\nt", "(I1\nt")); }, {"differ in length"});
  expect_user_error([&] { read(file_of("I-1\n", "(I1\nt", "(I1\nt")); }, {"x.pt"});
}

TEST(TorchFile, EndsWithNestingWithoutEnd) {
  const std::string head("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.I1001\n.}.", 24),
      cycle = head + "(lp0\ng0\na.(l.";
  const TorchFile file(as_bytes(cycle), "x.pt");
  expect_user_error([&] { file.tensors(file.root()); }, {"x.pt", "without end"});
}

TEST(TorchFile, SurvivesTruncationAndDamage) {
  std::mt19937 random(1);
  const auto survive = [](const std::string& content) {
    try {
      const TorchFile file(as_bytes(content), "x.pt");
      for (const NamedTensor& named : file.tensors(file.root())) {
        EXPECT_LE(named.tensor.bytes().begin, named.tensor.bytes().end);
        EXPECT_LE(named.tensor.bytes().end, content.size());
      }
      return true;
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
      return false;
    }
  };
  for (const std::string& name : kFiles) {
    const std::string content = read_file(fixture(name));
    for (std::size_t size = 0; size < content.size(); ++size)
      EXPECT_FALSE(survive(content.substr(0, size))) << name << " " << size;
    for (int round = 0; round < 1000; ++round) survive(mutate(content, random));
  }
}

}  // namespace
}  // namespace megatron
