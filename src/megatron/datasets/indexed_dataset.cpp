#include "megatron/datasets/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::size_t kHeaderSize = 34;

struct TokenDtypeInfo {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<TokenDtypeInfo, 9> kTypes = {{{"", 0},
                                                   {"uint8", 1},
                                                   {"int8", 1},
                                                   {"int16", 2},
                                                   {"int32", 4},
                                                   {"int64", 8},
                                                   {"float64", 8},
                                                   {"float32", 4},
                                                   {"uint16", 2}}};

template <class T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

/// Returns false when a real value is not a token id (fractional, infinite or too large).
template <class T>
bool convert(const std::byte* data, std::span<std::int64_t> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const T value = load<T>(data + i * sizeof(T));
    if constexpr (std::is_floating_point_v<T>)
      if (!(std::abs(value) < T(1e15)) || value != std::floor(value)) return false;
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): a token of type int8 is a number.
    tokens[i] = static_cast<std::int64_t>(value);
  }
  return true;
}

bool convert(TokenDtype type, const std::byte* data, std::span<std::int64_t> tokens) {
  switch (type) {
    case TokenDtype::uint8:
      return convert<std::uint8_t>(data, tokens);
    case TokenDtype::int8:
      return convert<std::int8_t>(data, tokens);
    case TokenDtype::int16:
      return convert<std::int16_t>(data, tokens);
    case TokenDtype::int32:
      return convert<std::int32_t>(data, tokens);
    case TokenDtype::int64:
      return convert<std::int64_t>(data, tokens);
    case TokenDtype::uint16:
      return convert<std::uint16_t>(data, tokens);
    case TokenDtype::float64:
      return convert<double>(data, tokens);
    case TokenDtype::float32:
      return convert<float>(data, tokens);
  }
  return true;
}

/// Throws a UserError with a hint if a local file is missing. Those of a remote prefix are missed
/// when they are opened.
void require_files(const std::string& prefix) {
  if (is_remote_path(prefix)) {
    if (prefix.starts_with("http") && prefix.find('?') != std::string::npos)
      throw UserError({"the prefix of a dataset must not contain a query",
                       prefix.substr(0, prefix.find('?')) + "?…",
                       "give a URL to which .bin and .idx can be appended"});
    return;
  }
  for (const char* extension : {".idx", ".bin"}) {
    if (fs::exists(prefix + extension)) continue;
    std::string fix = "give the path without .bin and .idx, as preprocess-data printed it";
    if (fs::exists(prefix + "_text_document.idx"))
      fix = "did you mean " + prefix + "_text_document?";
    if (prefix.ends_with(".bin") || prefix.ends_with(".idx"))
      fix = "leave out the extension: " + prefix.substr(0, prefix.size() - 4);
    else if (fs::is_regular_file(prefix))
      throw UserError(
          {"dataset " + prefix + " is a file, not the prefix of a .bin and an .idx file", "",
           "for text, write them with megatron preprocess-data --input " + prefix +
               "; for labelled texts of bert add --task, for conversations --sft"});
    throw UserError({"dataset " + prefix + ": there is no file " + prefix + extension, "", fix});
  }
}

}  // namespace

std::size_t token_dtype_size(TokenDtype type) {
  return kTypes[static_cast<std::size_t>(type)].size;
}
std::string_view token_dtype_name(TokenDtype type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}
TokenDtype optimal_token_dtype(std::int64_t vocab_size) {
  return vocab_size < 65500 ? TokenDtype::uint16 : TokenDtype::int32;
}

IndexedDataset::IndexedDataset(std::string prefix, const IndexedDatasetOptions& options)
    : prefix_(std::move(prefix)), partial_(options.partial) {
  require_files(prefix_);
  index_ = MappedFile(local_copy(prefix_ + ".idx", options.storage));
  open_bin(options);
  parse_index(options.multimodal);
}

void IndexedDataset::throw_damaged_index(const std::string& what, const std::string& got) const {
  throw UserError({prefix_ + ".idx: " + what, got,
                   "copy the dataset again, or make it again with preprocess-data"});
}

void IndexedDataset::open_bin(const IndexedDatasetOptions& options) {
  const std::string path = prefix_ + ".bin";
  if (options.mmap && !is_remote_path(path)) {
    bin_ = MappedFile(path);
    bin_size_ = bin_.size();
    return;
  }
  bin_reader_ = open_range_reader(path, options.storage);
  bin_size_ = bin_reader_->size();
}

void IndexedDataset::parse_index(bool multimodal) {
  const std::byte* data = index_.data();
  const std::size_t size = index_.size();
  if (size < kHeaderSize)
    throw_damaged_index("truncated header",
                        std::to_string(size) + " bytes instead of " + std::to_string(kHeaderSize));
  if (std::memcmp(data, kMagic.data(), kMagic.size()) != 0)
    throw_damaged_index("the file does not start with MMIDIDX, so it is not a Megatron index");
  if (const auto version = load<std::uint64_t>(data + 9); version != 1)
    throw_damaged_index("field 'version' must be 1", std::to_string(version));
  const auto code = load<std::uint8_t>(data + 17);
  if (code < 1 || code > 8)
    throw_damaged_index("field 'dtype' must be a code from 1 to 8", std::to_string(code));
  type_ = static_cast<TokenDtype>(code);

  const auto sequences = load<std::uint64_t>(data + 18), documents = load<std::uint64_t>(data + 26);
  const std::size_t body = size - kHeaderSize;
  if (sequences > body / 12)
    throw_damaged_index("truncated: field 'sequence_count' needs more bytes than the file has",
                        std::to_string(sequences));
  if (documents > (body - 12 * sequences) / 8)
    throw_damaged_index("truncated: field 'document_count' needs more bytes than the file has",
                        std::to_string(documents));
  if (documents == 0) throw_damaged_index("field 'document_count' must be at least 1", "0");
  const std::size_t rest = body - 12 * sequences - 8 * documents;
  if (multimodal ? rest != sequences : rest != 0 && rest != sequences)
    throw_damaged_index(
        multimodal ? "a multimodal index needs one mode byte per sequence"
                   : "bytes follow the end of the index",
        std::to_string(rest) + " bytes for " + std::to_string(sequences) + " sequences");

  data += kHeaderSize;
  lengths_ = {data, sequences};
  pointers_ = {data + 4 * sequences, sequences};
  document_indices_ = {data + 12 * sequences, documents};
  if (multimodal) modes_ = {data + 12 * sequences + 8 * documents, sequences};
  check_document_ends();
  check_ends();
}

/// Checks that the sequence lies inside the .bin file and is aligned to the element size.
void IndexedDataset::check_sequence(std::int64_t sequence) const {
  const std::int64_t length = lengths_[sequence], pointer = pointers_[sequence];
  if (length < 0)
    throw_damaged_index("the length of sequence " + std::to_string(sequence) + " is negative",
                        std::to_string(length));
  if (pointer < 0)
    throw_damaged_index("the pointer of sequence " + std::to_string(sequence) + " is negative",
                        std::to_string(pointer));
  const std::uint64_t bytes = static_cast<std::uint64_t>(length) * token_dtype_size(type_);
  if (bytes > bin_size_ || static_cast<std::uint64_t>(pointer) > bin_size_ - bytes)
    throw_damaged_index(
        "sequence " + std::to_string(sequence) + " lies outside " + prefix_ + ".bin",
        "bytes " + std::to_string(pointer) + " + " + std::to_string(bytes) + " of " +
            std::to_string(bin_size_) + "; a file is truncated, or the two do not belong together");
  if (static_cast<std::uint64_t>(pointer) % token_dtype_size(type_) != 0)
    throw_damaged_index("the pointer of sequence " + std::to_string(sequence) +
                            " is not a multiple of the " + std::to_string(token_dtype_size(type_)) +
                            " bytes of " + std::string(token_dtype_name(type_)),
                        std::to_string(pointer));
}

std::int64_t IndexedDataset::end_of(std::int64_t sequence) const {
  return pointers_[sequence] +
         lengths_[sequence] * static_cast<std::int64_t>(token_dtype_size(type_));
}

/// Checks what is visible without a pass over the index. Preprocessing and merging write sequences
/// in order, so the first one begins the .bin file and the last one ends it. For any other index
/// it checks all entries.
void IndexedDataset::check_ends() const {
  const std::int64_t last = num_sequences() - 1;
  if (last < 0) return check_coverage(0);
  check_sequence(0);
  check_sequence(last);
  if (pointers_[0] != 0 || static_cast<std::uint64_t>(end_of(last)) != bin_size_) check();
}

void IndexedDataset::check() const {
  check_once_.run([this] {
    check_documents();
    check_sequences();
  });
}

/// Checks that the sequences cover the .bin file without overlap, in any order.
void IndexedDataset::check_sequences() const {
  std::int64_t covered = 0, end = 0;
  bool is_ascending = true;
  for (std::int64_t sequence = 0; sequence < num_sequences(); ++sequence) {
    check_sequence(sequence);
    if (lengths_[sequence] == 0) continue;
    is_ascending = is_ascending && pointers_[sequence] >= end;
    end = end_of(sequence);
    covered += end - pointers_[sequence];
  }
  if (!is_ascending) check_overlaps();
  if (!partial_) check_coverage(covered);
}

void IndexedDataset::check_overlaps() const {
  std::vector<std::int64_t> order;
  for (std::int64_t sequence = 0; sequence < num_sequences(); ++sequence)
    if (lengths_[sequence] > 0) order.push_back(sequence);
  std::sort(order.begin(), order.end(), [this](std::int64_t a, std::int64_t b) {
    return std::pair(pointers_[a], a) < std::pair(pointers_[b], b);
  });
  const auto place = [this](std::int64_t sequence) {
    return "bytes " + std::to_string(pointers_[sequence]) + " to " +
           std::to_string(end_of(sequence) - 1);
  };
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::int64_t before = order[i - 1], after = order[i];
    if (pointers_[after] >= end_of(before)) continue;
    throw_damaged_index(
        "sequences " + std::to_string(before) + " and " + std::to_string(after) + " overlap",
        place(before) + " and " + place(after) + " of " + prefix_ + ".bin");
  }
}

/// Rejects an index that does not cover the .bin file. Most often it is an old index of a new file.
void IndexedDataset::check_coverage(std::int64_t covered) const {
  if (static_cast<std::uint64_t>(covered) == bin_size_) return;
  throw UserError(
      {prefix_ + ".idx: its " + std::to_string(num_sequences()) + " sequences cover " +
           std::to_string(covered) + " bytes of " + prefix_ + ".bin",
       "that file has " + std::to_string(bin_size_) + "; the two files do not belong together",
       "make both again with preprocess-data; if the index omits a part of the .bin file on "
       "purpose, megatron dataset merge " +
           prefix_ + " --output-prefix NEW writes the rest as a new dataset"});
}

void IndexedDataset::check_document_ends() const {
  const std::int64_t last = num_documents();
  if (document_indices_[0] != 0)
    throw_damaged_index("the first document index must be 0", std::to_string(document_indices_[0]));
  if (document_indices_[last] != num_sequences())
    throw_damaged_index("the last document index must be the number of sequences, " +
                            std::to_string(num_sequences()),
                        std::to_string(document_indices_[last]));
}

void IndexedDataset::check_documents() const {
  const std::int64_t last = num_documents();
  for (std::int64_t document = 0; document < last; ++document) {
    const std::int64_t begin = document_indices_[document], end = document_indices_[document + 1];
    if (end < begin)
      throw_damaged_index("document indices must not decrease",
                          "entry " + std::to_string(document + 1) + " is " + std::to_string(end) +
                              " after " + std::to_string(begin));
  }
}

std::int64_t IndexedDataset::num_tokens() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) total += lengths_[i];
  return total;
}

void IndexedDataset::read_bytes(std::uint64_t offset, std::span<std::byte> bytes) const {
  MEGATRON_CHECK(bytes.size() <= bin_size_ && offset <= bin_size_ - bytes.size(), bytes.size(),
                 " bytes at ", offset, " of ", prefix_, ".bin are outside its ", bin_size_);
  if (bytes.empty()) return;
  if (bin_reader_) return bin_reader_->read(offset, bytes);
  std::memcpy(bytes.data(), bin_.data() + offset, bytes.size());
}

void IndexedDataset::read(std::int64_t sequence, std::int64_t offset,
                          std::span<std::int64_t> tokens) const {
  if (tokens.empty()) return;
  MEGATRON_CHECK(sequence >= 0 && sequence < num_sequences(), "sequence ", sequence, " of ",
                 num_sequences(), " in ", prefix_);
  check_sequence(sequence);
  const std::int64_t length = lengths_[sequence];
  MEGATRON_CHECK(offset >= 0 && offset <= length && std::int64_t(tokens.size()) <= length - offset,
                 tokens.size(), " tokens at ", offset, " of the ", length, " of sequence ",
                 sequence, " of ", prefix_);
  const std::size_t size = token_dtype_size(type_);
  const std::uint64_t position =
      static_cast<std::uint64_t>(pointers_[sequence]) + static_cast<std::uint64_t>(offset) * size;
  bool whole = true;
  if (!bin_reader_) {
    whole = convert(type_, bin_.data() + position, tokens);
  } else {
    std::vector<std::byte> bytes(tokens.size() * size);
    read_bytes(position, bytes);
    whole = convert(type_, bytes.data(), tokens);
  }
  if (!whole)
    throw UserError({prefix_ + ".bin: sequence " + std::to_string(sequence) + " holds " +
                         std::string(token_dtype_name(type_)) + " values that are not token ids",
                     "", ""});
}

}  // namespace megatron
