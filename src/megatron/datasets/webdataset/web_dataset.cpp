#include "megatron/datasets/webdataset/web_dataset.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/datasets/index_cache.h"
#include "megatron/datasets/parallel_for.h"
#include "megatron/datasets/webdataset/tar_reader.h"

namespace megatron {
namespace {

constexpr const char* kIndexName = "WebDataset";

/// Returns whether a part of a path is __like_this__, a name of data about the archive.
bool is_meta(std::string_view part) {
  return part.size() >= 4 && part.starts_with("__") && part.ends_with("__");
}

/// Returns the sample's part of a file, or nullopt if it belongs to none.
std::optional<std::pair<std::string, std::string>> sample_part(const TarMember& member) {
  if (is_meta(std::string_view(member.name).substr(0, member.name.find('/')))) return std::nullopt;
  return split_member_name(member.name);
}

/// Passes once over an archive. Returns the offset of each sample's first file, and the end of the
/// last file.
NpyArray make_index(const RangeReader& file) {
  std::vector<std::int64_t> offsets;
  std::string key;
  std::vector<std::string> fields;
  TarReader reader(file);
  std::int64_t end = 0;
  while (const std::optional<TarMember> member = reader.next()) {
    auto part = sample_part(*member);
    if (!part) continue;
    if (offsets.empty() || part->first != key) {
      offsets.push_back(static_cast<std::int64_t>(member->header_offset));
      key = part->first;
      fields.clear();
    }
    if (std::find(fields.begin(), fields.end(), part->second) != fields.end())
      throw UserError({file.name() + ": the sample " + key + " has the field " + part->second +
                           " twice, at offset " + std::to_string(member->header_offset),
                       "", "give the files of each sample different extensions"});
    fields.push_back(std::move(part->second));
    end = static_cast<std::int64_t>(reader.offset());
  }
  offsets.push_back(end);
  return NpyArray(std::move(offsets));
}

bool is_valid_index(const NpyArray& index, std::uint64_t file_bytes) {
  return index.type() == NpyType::int64 && index.size() > 0 && index.at(0) >= 0 &&
         index.at(index.size() - 1) <= static_cast<std::int64_t>(file_bytes);
}

fs::path cache_folder(const std::string& shard, const WebDatasetOptions& options) {
  if (!options.cache) return {};
  if (!options.cache_folder.empty()) return options.cache_folder;
  fs::path local = local_copy_path(shard, options.storage);
  return local.replace_extension() / "cache" / (std::string(kIndexName) + "_indices");
}

}  // namespace

std::optional<std::pair<std::string, std::string>> split_member_name(const std::string& name) {
  const std::size_t slash = name.rfind('/'), base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos) return std::nullopt;
  if (dot == base) {  // of a hidden file, the key is the folder, if its name has no dot
    if (base == 0) return std::nullopt;
    const std::size_t before = base < 2 ? std::string::npos : name.rfind('/', base - 2);
    const std::size_t folder = before == std::string::npos ? 0 : before + 1;
    if (name.find('.', folder) < base) return std::nullopt;
  }
  std::string field = name.substr(dot + 1);
  for (char& c : field) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::pair(name.substr(0, dot), std::move(field));
}

WebDataset::WebDataset(std::vector<std::string> shards, const WebDatasetOptions& options,
                       std::vector<std::string>& warnings)
    : shards_(std::move(shards)), files_(shards_.size()), indices_(shards_.size()) {
  std::mutex mutex;
  parallel_for(shards_.size(), [&](std::size_t shard) {
    files_[shard] = open_range_reader(shards_[shard], options.storage);
    std::vector<std::string> found;
    indices_[shard] = load_index(shard, options, found);
    const std::lock_guard lock(mutex);
    warnings.insert(warnings.end(), found.begin(), found.end());
  });
  begins_ = {0};
  for (const NpyArray& index : indices_) begins_.push_back(begins_.back() + index.size() - 1);
}

NpyArray WebDataset::load_index(std::size_t shard, const WebDatasetOptions& options,
                                std::vector<std::string>& warnings) const {
  const RangeReader& file = *files_[shard];
  const bool is_remote = is_remote_path(shards_[shard]);
  const std::string contents =
      file.name() + "\n" + file.version() + "\n" + std::to_string(file.size());
  IndexCacheEntry entry{
      .folder = cache_folder(shards_[shard], options),
      .class_name = kIndexName,
      .split = "all",
      .description = "{\"class\": \"WebDataset\", \"shard\": \"" + file.name() + "\"}",
      .array_names = {"sample_index"}};
  // The size and the time of a file are its version.
  entry.sources.checksum = [contents] { return checksum(contents); };
  if (is_remote && file.version().empty()) entry.folder.clear();
  return load_or_build(
      entry, [&] { return IndexArrays{make_index(file)}; },
      [&](const IndexArrays& arrays) { return is_valid_index(arrays[0], file.size()); },
      warnings)[0];
}

WebSample WebDataset::read(std::int64_t index, bool with_bytes) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto shard = static_cast<std::size_t>(next - begins_.begin() - 1);
  const RangeReader& file = *files_[shard];
  const std::int64_t place = index - begins_[shard];
  const auto end = static_cast<std::uint64_t>(indices_[shard].at(place + 1));
  WebSample sample{.key = {}, .shard = shards_[shard], .fields = {}};
  TarReader reader(file, static_cast<std::uint64_t>(indices_[shard].at(place)));
  while (reader.offset() < end) {
    const std::optional<TarMember> member = reader.next();
    if (!member) break;
    auto part = sample_part(*member);
    if (!part) continue;
    if (!sample.fields.empty() && part->first != sample.key) break;
    sample.key = std::move(part->first);
    WebField field{.name = std::move(part->second), .size = member->size};
    if (with_bytes) {
      field.bytes.resize(member->size);
      file.read(member->data_offset, std::as_writable_bytes(std::span(field.bytes)));
    }
    sample.fields.push_back(std::move(field));
  }
  return sample;
}

}  // namespace megatron
