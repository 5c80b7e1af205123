#include "megatron/base/tuning_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "megatron/base/checksum.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

/// Increase this when kernels change so much that old measurements are no longer valid.
constexpr const char* kCacheVersion = "1";

/// Returns a hash of the lines of /proc/cpuinfo that identify the CPU model.
std::string cpu_fingerprint() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string kind = kCacheVersion;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    for (const char* key :
         {"vendor_id", "cpu family", "model\t", "model name", "stepping", "flags", "cache size"}) {
      if (line.starts_with(key)) kind += line + '\n';
    }
  }
  return md5_hex(kind);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

/// Writes `text` to `path` unless the file exists. Returns the content of the file afterwards.
std::string keep(const fs::path& path, const std::string& text) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  const fs::path temporary =
      path.string() + "." + std::to_string(::getpid()) + "." + std::to_string(::gettid());
  {
    std::ofstream file(temporary, std::ios::binary);
    if (!(file << text).flush()) return text;
  }
  fs::create_hard_link(temporary, path, failed);
  const std::string kept = contents_of(path);
  fs::remove(temporary, failed);
  return kept.empty() ? text : kept;
}

}  // namespace

std::string tuning_cache_folder() {
  const std::string cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!cache.empty()) return cache + "/megatron";
  return home.empty() ? "" : home + "/.cache/megatron";
}

std::string cached_measurement(std::string_view name, const std::function<std::string()>& measure) {
  const std::string folder = tuning_cache_folder();
  if (folder.empty()) return measure();
  const fs::path path = fs::path(folder) / (std::string(name) + "-" + cpu_fingerprint());
  const std::string kept = contents_of(path);
  return kept.empty() ? keep(path, measure()) : kept;
}

}  // namespace megatron
