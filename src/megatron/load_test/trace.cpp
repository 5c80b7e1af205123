#include "megatron/load_test/trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/philox.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Reads "prompt_tokens=256,output_tokens_max=64".
std::map<std::string, std::int64_t> read_lengths(const std::string& data) {
  std::map<std::string, std::int64_t> lengths;
  for (const std::string& part : split_at(data, ',')) {
    const std::vector<std::string> sides = split_at(part, '=');
    const std::int64_t value =
        sides.size() == 2 ? exact_number<std::int64_t>(sides[1]).value_or(-1) : -1;
    bool is_known = false;
    for (const char* suffix : {"", "_stdev", "_min", "_max"})
      is_known |= sides[0] == "prompt_tokens" + std::string(suffix) ||
                  sides[0] == "output_tokens" + std::string(suffix);
    if (!is_known || value < 0)
      throw UserError({"--data", "'" + part + "' is neither a length nor a file",
                       "write for example --data prompt_tokens=256,prompt_tokens_stdev=64,"
                       "output_tokens=128, or name a file"});
    lengths[sides[0]] = value;
  }
  return lengths;
}

/// Returns the members that requests take from each line of a file.
std::vector<std::string> read_rows(const std::string& path, const std::string& wanted) {
  std::vector<std::string> rows;
  std::ifstream file(path);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string source = path + ":" + std::to_string(++number);
    const JsonCursor row(parse_json(line, source), source);
    Json members = {{wanted, *row[wanted]}};
    if (const auto tokens = row.find("output_tokens")) members["max_tokens"] = tokens->integer();
    rows.push_back(compact_json(members));
  }
  if (rows.empty()) throw UserError({path, "has no requests", "write a JSON object on each line"});
  return rows;
}

}  // namespace

Trace::Trace(const BenchServeOptions& options, std::vector<std::int64_t> alphabet)
    : options_(options), alphabet_(std::move(alphabet)) {
  if (std::filesystem::is_regular_file(options.data))
    rows_ = read_rows(options.data, options.endpoint == "chat" ? "messages" : "prompt");
  else
    lengths_ = read_lengths(options.data);
  if (options.extra_body.empty()) options_.extra_body = "{}";
  JsonCursor(parse_json(options_.extra_body, "--extra-body"), "--extra-body").object();
}

const std::vector<std::string>& Trace::words() {
  static const std::vector<std::string> words = split_words(
      "the of and to in that was his he it with is for as had you not be her on at by which have "
      "or from this him but all she they were my are me one their so an said them we who would "
      "been will no when there if more out up into do any your what has man could other than our "
      "some very time upon about may its only now like little then can made should did us such "
      "great before must two these see know over much down after first good men own never most");
  return words;
}

std::mt19937_64 Trace::generator(std::string_view site, std::int64_t index) const {
  const auto draws = philox_block(philox_key(static_cast<std::uint64_t>(options_.seed), site), 0,
                                  static_cast<std::uint64_t>(index));
  return std::mt19937_64((std::uint64_t{draws[0]} << 32) | draws[1]);
}

std::int64_t Trace::draw_length(const std::string& text, std::int64_t index) const {
  const auto length = [&](const char* suffix, std::int64_t otherwise) {
    const auto found = lengths_.find(text + suffix);
    return found == lengths_.end() ? otherwise : found->second;
  };
  constexpr std::int64_t kUnset = std::numeric_limits<std::int64_t>::max();
  const std::int64_t mean = length("", 1), stdev = length("_stdev", 0),
                     most = length("_max", kUnset);
  const std::int64_t least = std::min(std::max<std::int64_t>(length("_min", 1), 1), most);
  std::mt19937_64 draws = generator(text, index);
  if (stdev > 0) {
    std::normal_distribution<double> normal(static_cast<double>(mean), static_cast<double>(stdev));
    return std::clamp<std::int64_t>(std::llround(normal(draws)), least, most);
  }
  const bool is_uniform = lengths_.contains(text + "_min") && most != kUnset;
  if (is_uniform) return std::uniform_int_distribution(least, most)(draws);
  return std::clamp(mean, least, most);
}

std::string Trace::body(std::int64_t index) const {
  Json body = {
      {"model", options_.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (options_.ignore_eos) body["ignore_eos"] = true;
  if (!rows_.empty()) {
    body.update(Json::parse(rows_[static_cast<std::size_t>(index) % rows_.size()]));
  } else {
    std::vector<std::int64_t> ids;
    std::vector<std::string> text;
    const auto add_symbols = [&](std::int64_t count, std::mt19937_64 draws) {
      const std::size_t size = alphabet_.empty() ? words().size() : alphabet_.size();
      std::uniform_int_distribution<std::size_t> symbols(0, size - 1);
      for (; count > 0; --count) {
        const std::size_t symbol = symbols(draws);
        alphabet_.empty() ? text.push_back(words()[symbol]) : ids.push_back(alphabet_[symbol]);
      }
    };
    std::mt19937_64 draws = generator("prefix of a request", index);
    add_symbols(options_.prefix_tokens,
                generator("prefix", std::uniform_int_distribution<std::int64_t>(
                                        0, options_.num_prefixes - 1)(draws)));
    add_symbols(draw_length("prompt_tokens", index), generator("prompt", index));
    body["max_tokens"] = draw_length("output_tokens", index);
    if (options_.endpoint == "chat")
      body["messages"] = Json::array({{{"role", "user"}, {"content", joined_text(text, " ")}}});
    else
      body["prompt"] = alphabet_.empty() ? Json(joined_text(text, " ")) : Json(ids);
  }
  body.update(Json::parse(options_.extra_body));
  return compact_json(body);
}

double Trace::gap(const Arrivals& arrivals, std::int64_t index) const {
  if (index == 0 || std::isinf(arrivals.rate)) return 0;
  if (!arrivals.burstiness) return 1 / arrivals.rate;
  std::mt19937_64 draws = generator("gap", index);
  const double shape = *arrivals.burstiness;
  return std::gamma_distribution<double>(shape, 1 / (shape * arrivals.rate))(draws);
}

}  // namespace megatron
