#include "megatron/datasets/indexed_dataset_builder.h"

#include <numeric>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/datasets/leftovers.h"

namespace megatron {
namespace {

void rename_into_place(const std::string& from, const std::string& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) throw UserError({"cannot rename " + from + " to " + to, code.message(), ""});
}

fs::path folder_of(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

}  // namespace

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, TokenDtype type, bool multimodal)
    : IndexedDatasetBuilder(IndexedDatasetBuilderOptions{
          .prefix = std::move(prefix), .type = type, .multimodal = multimodal}) {}

IndexedDatasetBuilder::IndexedDatasetBuilder(IndexedDatasetBuilderOptions options)
    : options_(std::move(options)), lock_(take_lock(options_.prefix)) {
  MEGATRON_CHECK(options_.num_partitions > 0, options_.num_partitions, " partitions");
  const auto num_partitions = static_cast<std::size_t>(options_.num_partitions);
  MEGATRON_CHECK(options_.resumed.empty() || options_.resumed.size() == num_partitions,
                 num_partitions, " partitions, the resumed dataset has ", options_.resumed.size());
  if (options_.resumed.empty()) remove_leftovers(options_.prefix + ".partial");
  remove_leftovers(options_.prefix + ".tmp");
  for (std::size_t i = 0; i < num_partitions; ++i) {
    const PartState state = options_.resumed.empty() ? PartState{} : options_.resumed[i];
    parts_.emplace_back(options_.prefix, i, options_.type, options_.multimodal, state);
    total_.sequences += state.sequences;
    total_.documents += state.documents;
    total_.tokens += state.tokens;
  }
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() { remove_parts(); }

FileLock IndexedDatasetBuilder::take_lock(const std::string& prefix) {
  megatron::create_directories(folder_of(prefix));
  std::optional<FileLock> lock = FileLock::try_lock(prefix + ".partial.lock", LockFile::remove);
  if (!lock)
    throw UserError({"another process is writing the dataset " + prefix, "",
                     "wait for it, or choose another --output-prefix"});
  return *std::move(lock);
}

bool IndexedDatasetBuilder::can_resume(const IndexedDatasetBuilderOptions& options) {
  for (std::size_t i = 0; i < options.resumed.size(); ++i)
    if (!DatasetPart::can_resume(options.prefix, i, options.type, options.multimodal,
                                 options.resumed[i]))
      return false;
  return true;
}

void IndexedDatasetBuilder::remove_parts() const {
  for (const DatasetPart& part : parts_) part.remove();
}

void IndexedDatasetBuilder::add_document(std::span<const std::int32_t> tokens,
                                         std::span<const std::int32_t> lengths,
                                         std::span<const std::int8_t> modes) {
  MEGATRON_CHECK(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}) == tokens.size(),
                 "the lengths of a document do not sum to its ", tokens.size(), " tokens");
  MEGATRON_CHECK(modes.empty() || (options_.multimodal && modes.size() == lengths.size()),
                 "a document of ", lengths.size(), " sequences has ", modes.size(), " modes");
  const std::vector<std::int8_t> text(
      modes.empty() && options_.multimodal ? lengths.size() : std::size_t{0}, 0);
  DatasetPart& part = parts_[static_cast<std::size_t>(total_.documents) % parts_.size()];
  part.add_document(tokens, lengths, modes.empty() ? std::span<const std::int8_t>(text) : modes);
  total_.tokens += static_cast<std::int64_t>(tokens.size());
  total_.sequences += static_cast<std::int64_t>(lengths.size());
  ++total_.documents;
}

void IndexedDatasetBuilder::add_dataset(const IndexedDataset& dataset) {
  if (dataset.type() != options_.type)
    throw UserError({"dataset " + dataset.name() + ": element type " +
                         std::string(token_dtype_name(dataset.type())) + " differs from " +
                         std::string(token_dtype_name(options_.type)) +
                         " of the datasets before it",
                     "", "make all parts with the same tokenizer"});
  if (options_.multimodal && dataset.num_sequences() > 0 && dataset.sequence_modes().size() == 0)
    throw UserError(
        {"dataset " + dataset.name() + " has no sequence modes", "", "leave out --multimodal"});
  MEGATRON_CHECK(parts_.size() == 1, "a whole dataset for ", parts_.size(), " partitions");
  dataset.check();
  std::vector<std::byte> bytes;
  for (std::int64_t document = 0; document < dataset.num_documents(); ++document) {
    const std::int64_t end = dataset.document_indices()[document + 1];
    for (std::int64_t sequence = dataset.document_indices()[document]; sequence < end; ++sequence) {
      const std::int32_t length = dataset.sequence_lengths()[sequence];
      bytes.resize(static_cast<std::size_t>(length) * token_dtype_size(options_.type));
      dataset.read_bytes(static_cast<std::uint64_t>(dataset.sequence_pointers()[sequence]), bytes);
      parts_[0].add_sequence(
          bytes, length, options_.multimodal ? dataset.sequence_modes()[sequence] : std::int8_t{0});
    }
    parts_[0].end_document();
  }
  total_ = parts_[0].state();
}

std::vector<PartState> IndexedDatasetBuilder::checkpoint() {
  std::vector<PartState> states;
  for (DatasetPart& part : parts_) {
    part.checkpoint();
    states.push_back(part.state());
  }
  return states;
}

void IndexedDatasetBuilder::prepare_to_finalize() {
  is_prepared_ = true;
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    parts_[i].close();
    parts_[0].add_part(parts_[i]);
  }
  parts_[0].close();
  parts_[0].write_index();
}

void IndexedDatasetBuilder::finalize() {
  if (!is_prepared_) prepare_to_finalize();
  std::error_code ignored;
  fs::remove(options_.prefix + ".idx",
             ignored);  // readers find no dataset rather than an old index and new tokens
  rename_into_place(parts_[0].bin_path(), options_.prefix + ".bin");
  rename_into_place(parts_[0].index_path(), options_.prefix + ".idx");
  sync_folder(folder_of(options_.prefix));
  remove_parts();
}

}  // namespace megatron
