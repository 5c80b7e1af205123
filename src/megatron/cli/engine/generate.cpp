// `megatron generate`: continues prompts with a trained model, as text on the terminal or as JSON lines.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/inference_options.h"
#include "megatron/inference/generator.h"
#include "megatron/inference/load_model.h"
#include "megatron/inference/stored_tokenizer.h"
#include "megatron/inference/streaming_decoder.h"
#include "megatron/training/open_device.h"

namespace megatron {
namespace {

std::vector<std::string> file_prompts(const fs::path& path) {
  const std::string content = read_file(path);
  std::vector<std::string> prompts;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < content.size(); ++number) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::string source = path.string() + ", line " + std::to_string(number);
    prompts.push_back(path.extension() == ".jsonl" ? json_string(parse_json(line, source), "text", source) : line);
  }
  return prompts;
}

std::vector<std::string> all_prompts(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompt;
  if (!options.prompt_file.empty()) {
    const std::vector<std::string> more = file_prompts(options.prompt_file);
    if (more.empty()) throw UserError({"--prompt-file " + options.prompt_file, "holds no prompt", "write one prompt per line"});
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  return prompts;
}

/// The prompt's ids; an empty prompt begins a document.
std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  const std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  if (!ids.empty()) return {ids.begin(), ids.end()};
  const std::int32_t begin = tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eod();
  if (begin < 0) throw UserError({"--prompt", "an empty text", "the tokenizer has no token that begins a document: give some text"});
  return {begin};
}

std::string decode(const Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  return tokenizer.decode(std::vector<std::int32_t>(ids.begin(), ids.end()));
}

void print_json(const Tokenizer& tokenizer, const std::string& prompt, const std::vector<std::int64_t>& ids, const Generation& generation) {
  const OrderedJson object = {{"prompt", prompt},
                              {"prompt_ids", ids},
                              {"text", decode(tokenizer, generation.ids)},
                              {"ids", generation.ids},
                              {"finish_reason", finish_reason_name(generation.finish_reason)}};
  std::cout << object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
}

/// Writes prompt and continuation as it grows.
void stream_text(Generator& generator, const Tokenizer& tokenizer, const std::string& prompt, const std::vector<std::int64_t>& ids,
                 std::uint64_t index) {
  StreamingDecoder stream([&tokenizer](std::span<const std::int64_t> window) { return decode(tokenizer, window); }, ids);
  std::cout << prompt << std::flush;
  const Generation generation = generator.generate(ids, index, [&](std::int64_t id) { std::cout << stream.add(id) << std::flush; });
  std::cout << stream.finish() << std::endl;
  if (generation.finish_reason == FinishReason::max_positions) std::cerr << "(the model has no position for another token)\n";
}

}  // namespace

int run_generate(std::span<const std::string> args) {
  const GenerateOptions options = read_generate_options(args);
  const std::vector<std::string> prompts = all_prompts(options);
  const LoadedModel loaded =
      load_model(options.load, options.ckpt_step, {.device = open_device(options.device).device, .type = requested_type(options)});
  for (const std::string& note : loaded.source.notes) std::cerr << note << "\n";
  const StoredTokenizer stored = open_tokenizer(options.tokenizer, loaded.source);
  const SamplingOptions sampling{
      .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = static_cast<std::uint64_t>(options.seed)};
  Generator generator(*loaded.model, {.sampling = sampling, .max_new_tokens = options.max_new_tokens, .stop_ids = stored.stop_ids});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<std::int64_t> ids = prompt_ids(*stored.tokenizer, prompts[i]);
    if (options.json) {
      print_json(*stored.tokenizer, prompts[i], ids, generator.generate(ids, i));
    } else {
      if (i > 0) std::cout << "\n";
      stream_text(generator, *stored.tokenizer, prompts[i], ids, i);
    }
  }
  return 0;
}

}  // namespace megatron
