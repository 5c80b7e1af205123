#include "megatron/cli/dataset_shards.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/webdataset/shard_names.h"
#include "megatron/datasets/webdataset/shard_order.h"
#include "megatron/datasets/webdataset/web_dataset.h"

namespace megatron {
namespace {

bool is_shard(const std::string& word) { return word.substr(0, word.find('?')).ends_with(".tar"); }

WebDataset open_shards(const std::vector<std::string>& patterns,
                       const DatasetCommandOptions& options) {
  std::vector<std::string> names, warnings;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> expanded = expand_shard_names(pattern);
    names.insert(names.end(), expanded.begin(), expanded.end());
  }
  WebDataset dataset(std::move(names),
                     {.storage = storage_options(options.data),
                      .cache_folder = options.data.data_cache_path,
                      .cache = !options.data.data_cache_path.empty()},
                     warnings);
  for (const std::string& warning : warnings) std::cerr << "note: " << warning << "\n";
  return dataset;
}

/// Returns whether a field holds text that --decode prints.
bool is_text(const std::string& field) {
  constexpr std::array<std::string_view, 6> kTexts = {"txt", "text", "json",
                                                      "cls", "cls2", "transcript"};
  return std::find(kTexts.begin(), kTexts.end(), field.substr(field.rfind('.') + 1)) !=
         kTexts.end();
}

std::string sample_line(std::int64_t position, const WebSample& sample, bool decode) {
  JsonText line{{"index", position}, {"key", sample.key}, {"shard", sample.shard}};
  line["fields"] = JsonText::object();
  for (const WebField& field : sample.fields) line["fields"][field.name] = field.size;
  if (decode) {
    line["text"] = JsonText::object();
    for (const WebField& field : sample.fields)
      if (is_text(field.name)) line["text"][field.name] = field.bytes;
  }
  return line.dump();
}

}  // namespace

bool are_shards(const std::vector<std::string>& words) {
  const auto count = std::count_if(words.begin(), words.end(), is_shard);
  if (count != 0 && count != static_cast<std::ptrdiff_t>(words.size()))
    throw UserError({"some of the names are tar archives and some are not", "",
                     "name either shards or prefixes of .bin/.idx pairs"});
  return count != 0;
}

int describe_shards(const std::vector<std::string>& patterns,
                    const DatasetCommandOptions& options) {
  const WebDataset dataset = open_shards(patterns, options);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < dataset.shards().size(); ++i) bytes += dataset.shard_bytes(i);
  struct Total {
    std::int64_t samples = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::string, Total> fields;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    for (const WebField& field : dataset.describe(i).fields) {
      ++fields[field.name].samples;
      fields[field.name].bytes += field.size;
    }
  }
  std::cout << "shards: " << dataset.shards().size() << "\nsamples: " << dataset.size()
            << "\nbytes: " << bytes << "\n";
  for (const auto& [name, total] : fields)
    std::cout << "field " << name << ": " << total.samples << " samples, " << total.bytes
              << " bytes\n";
  return 0;
}

int show_shards(const std::vector<std::string>& patterns, const DatasetCommandOptions& options) {
  const WebDataset dataset = open_shards(patterns, options);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < dataset.shards().size(); ++i) sizes.push_back(dataset.shard_size(i));
  const ShardOrder order(std::move(sizes), {.seed = static_cast<std::uint32_t>(options.seed),
                                            .shuffle_window = options.shuffle_window});
  std::int64_t end = options.start + options.count;  // a shuffled run continues with the next epoch
  if (options.shuffle_window == 0) end = std::min(end, dataset.size());
  for (std::int64_t i = options.start; i < end && std::cout; ++i) {
    const std::int64_t sample = order.sample(i);
    std::cout << sample_line(i, options.decode ? dataset.sample(sample) : dataset.describe(sample),
                             options.decode)
              << "\n";
  }
  return 0;
}

}  // namespace megatron
