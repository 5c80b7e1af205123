#include "megatron/datasets/punkt_parameters.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr const char* kAbbreviations = "abbrev_types.txt";
constexpr const char* kCollocations = "collocations.tab";
constexpr const char* kStarters = "sent_starters.txt";
constexpr const char* kContexts = "ortho_context.tab";

/// Calls read(line, where) for each line of a file.
void read_lines(const fs::path& file,
                const std::function<void(std::string_view, const std::string&)>& read) {
  const std::string text = read_file(file);
  if (replace_invalid_utf8(text))
    throw UserError({file.string() + " is not valid UTF-8", "", "give a folder of punkt_tab"});
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    read(std::string_view(text).substr(begin, end - begin),
         file.string() + ":" + std::to_string(number));
    begin = end + 1;
  }
}

std::unordered_set<std::string> read_set(const fs::path& file) {
  std::unordered_set<std::string> words;
  read_lines(file, [&](std::string_view line, const std::string&) { words.emplace(line); });
  return words;
}

/// Returns the two columns of a line.
std::pair<std::string_view, std::string_view> columns(std::string_view line,
                                                      const std::string& where) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos)
    throw UserError({where + ": a line must have two columns, divided by a tab",
                     std::string(line.substr(0, 80)), "give a folder of punkt_tab"});
  return {line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace

PunktParameters load_punkt(const fs::path& folder) {
  PunktParameters parameters;
  parameters.abbreviations = read_set(folder / kAbbreviations);
  parameters.sentence_starters = read_set(folder / kStarters);
  read_lines(folder / kCollocations, [&](std::string_view line, const std::string& where) {
    columns(line, where);
    parameters.collocations.emplace(line);
  });
  read_lines(folder / kContexts, [&](std::string_view line, const std::string& where) {
    const auto [type, bits] = columns(line, where);
    const int value = exact_number<int>(bits).value_or(-1);
    if (value < 0)
      throw UserError({where + ": the second column must be a number", std::string(bits),
                       "give a folder of punkt_tab"});
    parameters.contexts[std::string(type)] = value;
  });
  return parameters;
}

}  // namespace megatron
