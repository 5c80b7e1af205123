#include "megatron/config/byte_count.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr double kKibi = 1024;
constexpr double kMostBytes = 1e18;
constexpr std::array<std::pair<std::string_view, double>, 17> kUnits{
    {{"", 1},
     {"b", 1},
     {"k", 1e3},
     {"kb", 1e3},
     {"kib", kKibi},
     {"m", 1e6},
     {"mb", 1e6},
     {"mib", kKibi* kKibi},
     {"g", 1e9},
     {"gb", 1e9},
     {"gib", kKibi* kKibi* kKibi},
     {"tb", 1e12},
     {"t", 1e12},
     {"tib", kKibi* kKibi* kKibi* kKibi},
     {"p", 1e15},
     {"pb", 1e15},
     {"pib", kKibi* kKibi* kKibi* kKibi* kKibi}}};

}  // namespace

std::optional<double> byte_count(const std::string& text) {
  const bool is_hexadecimal = text.find_first_of("xX") != std::string::npos;
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) == 0 || is_hexadecimal)
    return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit;
  for (const char* c = end; *c != '\0'; ++c) {
    if (*c == ' ' && unit.empty()) continue;
    unit += *c;
  }
  unit = lower_case(unit);
  for (const auto& [name, bytes] : kUnits) {
    const double count = number * bytes;
    if (unit == name && count > 0 && count < kMostBytes) return count;
  }
  return std::nullopt;
}

std::string byte_size_text(double bytes) {
  constexpr double kKibibyte = 1 << 10, kMebibyte = 1 << 20, kGibibyte = 1 << 30;
  if (bytes >= kGibibyte) return format("%.2f GiB", bytes / kGibibyte);
  if (bytes >= kMebibyte / 10 || bytes == 0) return format("%.1f MiB", bytes / kMebibyte);
  return bytes >= kKibibyte ? format("%.1f KiB", bytes / kKibibyte) : format("%.0f B", bytes);
}

bool is_automatic_budget(const std::string& text) { return lower_case(text) == "auto"; }

}  // namespace megatron
