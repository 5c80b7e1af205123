// Runs shell commands.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace megatron {

/// Returns the exit code of a shell command, 128 if a signal ended it, and what it prints.
inline std::pair<int, std::string> shell(const std::string& command) {
  FILE* pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, text};
}

/// Returns the number in an environment variable, which a longer or a repeated test sets.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

}  // namespace megatron
