#include "megatron/metrics/deleted_file.h"

#include <iostream>
#include <system_error>

namespace megatron {

namespace fs = std::filesystem;

bool is_deleted(const fs::path& path) {
  std::error_code unknown;
  return fs::status(path, unknown).type() == fs::file_type::not_found;
}

void reopen_deleted_file(const fs::path& path, std::ofstream& file, std::string_view contents) {
  std::cerr << "WARNING: " << path.string()
            << " was deleted during the run; it is created again, and its " << contents
            << " are lost" << std::endl;
  std::error_code unmade;
  fs::create_directories(path.parent_path(), unmade);
  file.close();
  file.clear();
  file.open(path, std::ios::binary | std::ios::app);
}

}  // namespace megatron
