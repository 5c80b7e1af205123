#include "megatron/cli/sentence_splitting.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/datasets/punkt_parameters.h"

namespace megatron {
namespace {

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Returns the folder of the language below --punkt-model, or that folder itself.
fs::path given_folder(const SentenceOptions& options) {
  fs::path folder = options.punkt_model, of_language = folder / options.lang;
  if (is_folder(of_language)) return of_language;
  std::error_code ignored;
  if (fs::exists(folder / "abbrev_types.txt", ignored)) return folder;
  throw UserError({"--punkt-model " + options.punkt_model + " has neither a folder " +
                       options.lang + " nor abbrev_types.txt",
                   "", "give nltk's folder punkt_tab, or the folder of one language in it"});
}

/// Returns the folder of the language in the places where nltk looks for its data.
fs::path installed_folder(const std::string& lang) {
  std::vector<fs::path> places;
  const auto add_variable = [&](const char* name, const char* below) {
    const char* value = std::getenv(name);
    if (value == nullptr) return;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::string_view place = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(place.size() + 1, rest.size()));
      if (!place.empty()) places.push_back(fs::path(place) / below);
    }
  };
  add_variable("NLTK_DATA", "");
  add_variable("HOME", "nltk_data");
  for (const char* place : {"/usr/share/nltk_data", "/usr/local/share/nltk_data",
                            "/usr/lib/nltk_data", "/usr/local/lib/nltk_data"})
    places.emplace_back(place);
  const fs::path name = fs::path("tokenizers") / "punkt_tab" / lang;
  std::string searched;
  for (const fs::path& place : places) {
    if (is_folder(place / name)) return place / name;
    searched += (searched.empty() ? "" : ", ") + place.string();
  }
  throw UserError({"--split-sentences needs nltk's " + name.string(), "it is not in " + searched,
                   "run `python3 -m nltk.downloader punkt_tab`, or give --punkt-model FOLDER with "
                   "nltk's punkt_tab"});
}

}  // namespace

SentenceSplitting sentence_splitting(const SentenceOptions& options) {
  const fs::path folder =
      options.punkt_model.empty() ? installed_folder(options.lang) : given_folder(options);
  return {
      .splitter = std::make_shared<const PunktSplitter>(load_punkt(folder), options.keep_newlines),
      .source = folder.string()};
}

}  // namespace megatron
