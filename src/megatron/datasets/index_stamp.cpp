#include "megatron/datasets/index_stamp.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/json_fwd.h"

namespace megatron {
namespace {

constexpr std::int64_t kVersion = 1;

/// Times of files have a resolution of up to two seconds, so a file that is younger than this may
/// change again without a change of its time.
constexpr std::int64_t kSettledNanoseconds = 2'000'000'000;

OrderedJson source_entry(const fs::path& file) {
  const std::optional<FileStamp> stamp = file_stamp(file);
  if (!stamp) return {{"file", file.filename().string()}};
  return {{"file", file.filename().string()}, {"bytes", stamp->bytes}, {"time_ns", stamp->time_ns}};
}

bool is_settled(const OrderedJson& source) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  const auto time = source.find("time_ns");
  return time != source.end() &&
         std::abs(now_ns - time->get<std::int64_t>()) >= kSettledNanoseconds;
}

/// Returns a checksum of the first and last bytes: a copy or a write that was cut short differs.
OrderedJson array_entry(const fs::path& path) {
  constexpr std::size_t kEnd = 4096;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::size_t end = std::min(bytes.size(), kEnd);
  return {{"array", path.filename().string()},
          {"bytes", static_cast<std::int64_t>(bytes.size())},
          {"first", checksum_hex(checksum(bytes.first(end)))},
          {"last", checksum_hex(checksum(bytes.last(end)))}};
}

/// Returns the member `key`, or null.
OrderedJson member(const OrderedJson& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? OrderedJson(nullptr) : *found;
}

std::string checksum_text(const IndexSources& sources) {
  return sources.checksum ? checksum_hex(sources.checksum()) : "";
}

/// Returns the first source whose size or time differs from its entry, or may differ unnoticed.
std::optional<fs::path> first_unsure(const OrderedJson& entries, const IndexSources& sources) {
  for (std::size_t i = 0; i < sources.files.size(); ++i) {
    const OrderedJson& kept = entries[i];
    const OrderedJson now = source_entry(sources.files[i]);
    const bool settled = member(kept, "settled") == true;
    for (const char* key : {"bytes", "time_ns"}) {
      const OrderedJson value = member(now, key);
      if (!settled || value.is_null() || value != member(kept, key)) return sources.files[i];
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<FileStamp> file_stamp(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return FileStamp{
      .bytes = static_cast<std::int64_t>(status.st_size),
      .time_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::string make_index_stamp(const IndexSources& sources, const std::vector<fs::path>& arrays) {
  OrderedJson stamp{{"version", kVersion}, {"contents", checksum_text(sources)}};
  stamp["sources"] = OrderedJson::array();
  for (const fs::path& file : sources.files) {
    OrderedJson entry = source_entry(file);
    entry["settled"] = is_settled(entry);
    stamp["sources"].push_back(std::move(entry));
  }
  stamp["arrays"] = OrderedJson::array();
  for (const fs::path& path : arrays) stamp["arrays"].push_back(array_entry(path));
  return stamp.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::optional<std::string> index_stamp_mismatch(const std::string& stamp,
                                                const IndexSources& sources,
                                                const std::vector<fs::path>& arrays) {
  const OrderedJson kept = OrderedJson::parse(stamp, nullptr, /*allow_exceptions=*/false);
  if (member(kept, "version") != kVersion) return "its stamp is damaged or of another version";
  const OrderedJson kept_sources = member(kept, "sources"), kept_arrays = member(kept, "arrays");
  if (!kept_sources.is_array() || kept_sources.size() != sources.files.size() ||
      !kept_arrays.is_array() || kept_arrays.size() != arrays.size())
    return "its stamp is damaged";
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const OrderedJson now = array_entry(arrays[i]);
    for (const char* key : {"bytes", "first", "last"}) {
      if (member(now, key) != member(kept_arrays[i], key))
        return arrays[i].filename().string() + " was cut short or overwritten";
    }
  }
  const std::optional<fs::path> unsure = first_unsure(kept_sources, sources);
  if ((unsure || sources.files.empty()) && member(kept, "contents") != checksum_text(sources))
    return unsure ? unsure->string() + " has changed since" : "the data have changed since";
  return std::nullopt;
}

}  // namespace megatron
