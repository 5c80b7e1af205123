#include "megatron/checkpoint/name_list.h"

#include "megatron/base/error.h"

namespace megatron {

std::string name_list(std::span<const std::string> names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

void require_no_names(const std::string& what, std::span<const std::string> names) {
  if (!names.empty()) throw UserError({what, name_list(names), ""});
}

}  // namespace megatron
