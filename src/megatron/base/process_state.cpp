#include "megatron/base/process_state.h"

#include <fstream>
#include <string>

namespace megatron {

bool is_process_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may itself contain parentheses
  if (process == 0 || name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

}  // namespace megatron
