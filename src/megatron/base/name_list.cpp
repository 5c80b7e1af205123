#include "megatron/base/name_list.h"

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {

std::string name_list(std::span<const std::string> names) {
  constexpr std::size_t kShown = 20;
  std::string text = joined_text(names.first(std::min(names.size(), kShown)));
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::string name_lines(std::span<const std::string> names) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) text += "\n    " + names[i];
  if (names.size() > kShown) text += "\n    and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

void require_no_names(const std::string& what, std::span<const std::string> names,
                      const std::string& fix) {
  if (!names.empty())
    throw UserError({what, std::to_string(names.size()) + name_lines(names), fix});
}

void require_same_names(const std::string& what, std::span<const std::string> missing,
                        std::span<const std::string> unexpected, const std::string& fix) {
  std::string text;
  for (const auto& [title, names] : {std::pair("missing: ", missing), {"unexpected: ", unexpected}})
    if (!names.empty())
      text +=
          (text.empty() ? "" : "\n  ") + (title + std::to_string(names.size()) + name_lines(names));
  if (!text.empty()) throw UserError({what, text, fix});
}

}  // namespace megatron
