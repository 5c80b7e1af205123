#include "megatron/datasets/indexed_dataset_builder.h"

#include <unistd.h>

#include <limits>
#include <numeric>
#include <string_view>

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

void rename_into_place(const std::string& from, const std::string& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) throw UserError({"cannot rename " + from + " to " + to, code.message(), ""});
}

}  // namespace

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, TokenDtype type, bool multimodal)
    : prefix_(std::move(prefix)),
      temporary_(prefix_ + ".tmp." + std::to_string(::getpid())),
      type_(type),
      multimodal_(multimodal) {
  if (const fs::path folder = fs::path(prefix_).parent_path(); !folder.empty())
    megatron::create_directories(folder);
  bin_ = std::make_unique<FileWriter>(temporary_ + ".bin");
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() {
  bin_.reset();
  if (finalized_) return;
  std::error_code ignored;
  fs::remove(temporary_ + ".bin", ignored);
  fs::remove(temporary_ + ".idx", ignored);
}

void IndexedDatasetBuilder::write_tokens(std::span<const std::int32_t> tokens) {
  switch (type_) {
    case TokenDtype::uint8:
      return write_as<std::uint8_t>(*bin_, tokens, prefix_);
    case TokenDtype::int8:
      return write_as<std::int8_t>(*bin_, tokens, prefix_);
    case TokenDtype::int16:
      return write_as<std::int16_t>(*bin_, tokens, prefix_);
    case TokenDtype::int32:
      return bin_->write_values(tokens);
    case TokenDtype::int64:
      return write_as<std::int64_t>(*bin_, tokens, prefix_);
    case TokenDtype::uint16:
      return write_as<std::uint16_t>(*bin_, tokens, prefix_);
    case TokenDtype::float64:
      return write_as<double>(*bin_, tokens, prefix_);
    case TokenDtype::float32:
      return write_as<float>(*bin_, tokens, prefix_);
  }
}

void IndexedDatasetBuilder::add_document(std::span<const std::int32_t> tokens,
                                         std::span<const std::int32_t> lengths,
                                         std::span<const std::int8_t> modes) {
  MEGATRON_CHECK(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}) == tokens.size(),
                 "the lengths of a document's sequences must add up to its tokens");
  MEGATRON_CHECK(modes.empty() || (multimodal_ && modes.size() == lengths.size()),
                 "a multimodal document needs one mode per sequence");
  write_tokens(tokens);
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
  document_indices_.push_back(num_sequences());
  if (multimodal_ && modes.empty()) modes_.resize(lengths_.size(), 0);
  modes_.insert(modes_.end(), modes.begin(), modes.end());
}

void IndexedDatasetBuilder::add_dataset(const IndexedDataset& dataset) {
  if (dataset.type() != type_)
    throw UserError({"dataset " + dataset.name() + ": element type " +
                         std::string(token_dtype_name(dataset.type())) + " differs from " +
                         std::string(token_dtype_name(type_)) + " of the datasets before it",
                     "", "make all parts with the same tokenizer"});
  if (multimodal_ && dataset.num_sequences() > 0 && dataset.sequence_modes().size() == 0)
    throw UserError(
        {"dataset " + dataset.name() + " has no sequence modes", "", "leave out --multimodal"});
  dataset.check();
  const std::int64_t first = num_sequences();
  std::vector<std::byte> bytes;
  for (std::int64_t sequence = 0; sequence < dataset.num_sequences(); ++sequence) {
    const std::int32_t length = dataset.sequence_lengths()[sequence];
    bytes.resize(static_cast<std::size_t>(length) * token_dtype_size(type_));
    dataset.read_bytes(static_cast<std::uint64_t>(dataset.sequence_pointers()[sequence]), bytes);
    bin_->write(bytes.data(), bytes.size());
    lengths_.push_back(length);
    num_tokens_ += length;
    if (multimodal_) modes_.push_back(dataset.sequence_modes()[sequence]);
  }
  for (std::int64_t document = 1; document <= dataset.num_documents(); ++document)
    document_indices_.push_back(first + dataset.document_indices()[document]);
}

void IndexedDatasetBuilder::write_index(const std::string& path) const {
  FileWriter writer(path);
  writer.write(std::string_view("MMIDIDX\0\0", 9));
  write_value(writer, std::uint64_t{1});
  write_value(writer, static_cast<std::uint8_t>(type_));
  write_value(writer, static_cast<std::uint64_t>(lengths_.size()));
  write_value(writer, static_cast<std::uint64_t>(document_indices_.size()));
  writer.write_values(std::span<const std::int32_t>(lengths_));
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths_) {
    write_value(writer, pointer);
    pointer += length * static_cast<std::int64_t>(token_dtype_size(type_));
  }
  writer.write_values(std::span<const std::int64_t>(document_indices_));
  if (multimodal_) writer.write_values(std::span<const std::int8_t>(modes_));
  writer.close(/*sync=*/true);
}

void IndexedDatasetBuilder::finalize() {
  bin_->close(/*sync=*/true);
  write_index(temporary_ + ".idx");
  std::error_code ignored;
  fs::remove(prefix_ + ".idx",
             ignored);  // readers find no dataset rather than an old index and new tokens
  rename_into_place(temporary_ + ".bin", prefix_ + ".bin");
  rename_into_place(temporary_ + ".idx", prefix_ + ".idx");
  finalized_ = true;
}

}  // namespace megatron
