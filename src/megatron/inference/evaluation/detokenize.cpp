// Megatron-LM's tasks/zeroshot_gpt/detokenizer.py, without its rule for text like /' 5/, which
// replaces the digit by a pattern.
#include "megatron/inference/evaluation/detokenize.h"

#include <algorithm>
#include <string_view>

#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Applies replacements "from>to", which are separated by "|", one after the other.
void replace_all(std::string& text, std::string_view replacements) {
  while (!replacements.empty()) {
    const std::string_view one = replacements.substr(0, replacements.find('|'));
    replacements.remove_prefix(std::min(replacements.size(), one.size() + 1));
    const std::string_view from = one.substr(0, one.find('>')), to = one.substr(from.size() + 1);
    std::string changed;
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find(from, begin)) != std::string::npos;
         begin = end + from.size())
      changed.append(text, begin, end - begin).append(to);
    text = changed.append(text, begin);
  }
}

/// Removes the spaces behind an opening mark and before the closing mark that follows it.
void close_up(std::string& text, char open, char close) {
  std::string changed;
  std::size_t begin = 0;
  while (true) {
    const std::size_t first = text.find(open, begin);
    const std::size_t last = first == std::string::npos ? first : text.find(close, first + 1);
    if (last == std::string::npos) break;
    changed.append(text, begin, first + 1 - begin)
        .append(trim(std::string_view(text).substr(first + 1, last - first - 1)))
        .push_back(close);
    begin = last + 1;
  }
  text = changed.append(text, begin);
}

}  // namespace

std::string detokenized(const std::string& path, std::string text) {
  if (path.find("ptb") != std::string::npos) {
    replace_all(text, " '>'| \n>\n|\n >\n| n't>n't| N >1 |$ 1>$1|# 1>#1");
  } else if (path.find("wiki") != std::string::npos) {
    replace_all(text, "s '>s'| @-@ >-| @,@ >,| @.@ >.| : >: | ; >; | . >. | ! >! | ? >? | , >, ");
    for (const std::string_view marks : {"()", "[]", "{}", "\"\"", "''"})
      close_up(text, marks[0], marks[1]);
    replace_all(text, "= = = =>====|= = =>===|= =>==| ° >°| \n>\n|\n >\n| N > 1 | 's>'s");
  }
  return text;
}

}  // namespace megatron
