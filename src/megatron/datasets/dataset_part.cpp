#include "megatron/datasets/dataset_part.h"

#include <string_view>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

template <class T>
void write_as(FileWriter& writer, std::span<const std::int32_t> tokens, const std::string& prefix) {
  std::vector<T> values(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    values[i] = static_cast<T>(tokens[i]);
    if (static_cast<double>(values[i]) != static_cast<double>(tokens[i]))
      throw UserError({"dataset " + prefix + ": token id " + std::to_string(tokens[i]) +
                           " does not fit the element type",
                       "",
                       "the tokenizer's vocabulary size decides the type (uint16 below 65500 ids, "
                       "else int32): check --vocab-size"});
  }
  writer.write_values(std::span<const T>(values));
}

template <class T>
void write_value(FileWriter& writer, T value) {
  writer.write(&value, sizeof value);
}

}  // namespace

DatasetPart::DatasetPart(DatasetPart&&) noexcept = default;
DatasetPart::~DatasetPart() = default;

DatasetPart::DatasetPart(const std::string& prefix, std::size_t number, TokenDtype type,
                         bool multimodal, const PartState& resumed)
    : prefix_(prefix),
      stem_(stem(prefix, number)),
      type_(type),
      multimodal_(multimodal),
      state_(resumed) {
  for (int i = 0; i < kNumFiles; ++i) {
    const auto file = static_cast<File>(i);
    if (file != kModes || multimodal_) files_[file].emplace(path(file), size(file));
  }
}

bool DatasetPart::can_resume(const std::string& prefix, std::size_t number, TokenDtype type,
                             bool multimodal, const PartState& state) {
  for (int i = 0; i < kNumFiles; ++i) {
    const auto file = static_cast<File>(i);
    if (file == kModes && !multimodal) continue;
    std::error_code code;
    const std::uintmax_t held = fs::file_size(path(stem(prefix, number), file), code);
    if (code || held < size(state, type, file)) return false;
  }
  return true;
}

std::string DatasetPart::stem(const std::string& prefix, std::size_t number) {
  return prefix + ".partial." + std::to_string(number);
}

std::string DatasetPart::path(const std::string& stem, File file) {
  static constexpr std::array<const char*, kNumFiles> kEndings = {".bin", ".lengths", ".documents",
                                                                  ".modes"};
  return stem + kEndings[file];
}

std::uint64_t DatasetPart::size(const PartState& state, TokenDtype type, File file) {
  const auto sequences = static_cast<std::uint64_t>(state.sequences);
  switch (file) {
    case kBin:
      return static_cast<std::uint64_t>(state.tokens) * token_dtype_size(type);
    case kLengths:
      return sequences * sizeof(std::int32_t);
    case kDocuments:
      return static_cast<std::uint64_t>(state.documents) * sizeof(std::int64_t);
    default:
      return sequences;
  }
}

FileWriter& DatasetPart::writer(File file) { return files_[file]->writer(); }

void DatasetPart::write_tokens(std::span<const std::int32_t> tokens) {
  FileWriter& bin = writer(kBin);
  switch (type_) {
    case TokenDtype::uint8:
      return write_as<std::uint8_t>(bin, tokens, prefix_);
    case TokenDtype::int8:
      return write_as<std::int8_t>(bin, tokens, prefix_);
    case TokenDtype::int16:
      return write_as<std::int16_t>(bin, tokens, prefix_);
    case TokenDtype::int32:
      return bin.write_values(tokens);
    case TokenDtype::int64:
      return write_as<std::int64_t>(bin, tokens, prefix_);
    case TokenDtype::uint16:
      return write_as<std::uint16_t>(bin, tokens, prefix_);
    case TokenDtype::float64:
      return write_as<double>(bin, tokens, prefix_);
    case TokenDtype::float32:
      return write_as<float>(bin, tokens, prefix_);
  }
}

void DatasetPart::add_document(std::span<const std::int32_t> tokens,
                               std::span<const std::int32_t> lengths,
                               std::span<const std::int8_t> modes) {
  write_tokens(tokens);
  writer(kLengths).write_values(lengths);
  if (multimodal_) writer(kModes).write_values(modes);
  state_.tokens += static_cast<std::int64_t>(tokens.size());
  state_.sequences += static_cast<std::int64_t>(lengths.size());
  end_document();
}

void DatasetPart::add_sequence(std::span<const std::byte> bytes, std::int32_t length,
                               std::int8_t mode) {
  writer(kBin).write_values(bytes);
  write_value(writer(kLengths), length);
  if (multimodal_) write_value(writer(kModes), mode);
  state_.tokens += length;
  ++state_.sequences;
}

void DatasetPart::end_document() {
  write_value(writer(kDocuments), state_.sequences);
  ++state_.documents;
}

/// Calls `write` with blocks of a file of this part.
template <class Write>
void DatasetPart::read_values(File file, const Write& write) const {
  const MappedFile map(path(file));
  MEGATRON_CHECK(map.size() == size(file), path(file), " has ", map.size(), " bytes instead of ",
                 size(file));
  constexpr std::size_t kBlock = std::size_t{1} << 22;
  for (std::size_t begin = 0; begin < map.size(); begin += kBlock)
    write(map.bytes().subspan(begin, std::min(kBlock, map.size() - begin)));
}

void DatasetPart::add_part(const DatasetPart& part) {
  MEGATRON_CHECK(part.type_ == type_ && part.multimodal_ == multimodal_,
                 "parts of one dataset have one type");
  for (const File file : {kBin, kLengths, kModes}) {
    if (file != kModes || multimodal_)
      part.read_values(file,
                       [&](std::span<const std::byte> bytes) { writer(file).write_values(bytes); });
  }
  part.read_values(kDocuments, [&](std::span<const std::byte> bytes) {
    const std::span ends(reinterpret_cast<const std::int64_t*>(bytes.data()),
                         bytes.size() / sizeof(std::int64_t));
    for (const std::int64_t end : ends) write_value(writer(kDocuments), state_.sequences + end);
  });
  state_.sequences += part.state_.sequences;
  state_.documents += part.state_.documents;
  state_.tokens += part.state_.tokens;
}

void DatasetPart::close() {
  for (auto& file : files_)
    if (file) file->close();
}

void DatasetPart::checkpoint() {
  for (auto& file : files_)
    if (file) file->checkpoint();
}

void DatasetPart::write_index() const {
  FileWriter index(index_path());
  index.write(std::string_view("MMIDIDX\0\0", 9));
  write_value(index, std::uint64_t{1});
  write_value(index, static_cast<std::uint8_t>(type_));
  write_value(index, static_cast<std::uint64_t>(state_.sequences));
  write_value(index, static_cast<std::uint64_t>(state_.documents + 1));
  const auto copy = [&](std::span<const std::byte> bytes) { index.write_values(bytes); };
  read_values(kLengths, copy);
  std::int64_t pointer = 0;
  read_values(kLengths, [&](std::span<const std::byte> bytes) {
    const std::span lengths(reinterpret_cast<const std::int32_t*>(bytes.data()),
                            bytes.size() / sizeof(std::int32_t));
    for (const std::int32_t length : lengths) {
      write_value(index, pointer);
      pointer += length * static_cast<std::int64_t>(token_dtype_size(type_));
    }
  });
  write_value(index, std::int64_t{0});
  read_values(kDocuments, copy);
  if (multimodal_) read_values(kModes, copy);
  index.close(/*sync=*/true);
}

void DatasetPart::remove() const {
  std::error_code ignored;
  for (int i = 0; i < kNumFiles; ++i) fs::remove(path(static_cast<File>(i)), ignored);
  fs::remove(index_path(), ignored);
}

}  // namespace megatron
