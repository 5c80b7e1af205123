// Times the loader of a run. `loader_bench make PREFIX TOKENS VOCABULARY` writes a data set of
// documents of random ids, 1,024 in the mean. `loader_bench PREFIX SEQUENCE ROWS BATCHES PAUSE_MS
// VOCABULARY` takes batches of it, or of mock data with PREFIX "mock", from two workers that
// prefetch. Between two batches it sleeps, as a step on a GPU does. Prints JSON with microseconds
// for a batch: the wait for it, and the CPU time of all threads.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_loader.h"
#include "megatron/datasets/indexed_dataset_builder.h"

namespace {

using namespace megatron;

double cpu_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return 1e6 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

void make(const std::string& prefix, std::int64_t num_tokens, std::int32_t vocab_size) {
  IndexedDatasetBuilder builder(prefix,
                                vocab_size < 65500 ? TokenDtype::uint16 : TokenDtype::int32);
  std::mt19937 random(1);
  std::lognormal_distribution<double> length(std::log(1024) - 0.5, 1);
  std::vector<std::int32_t> ids;
  while (builder.num_tokens() < num_tokens) {
    ids.resize(1 + static_cast<std::size_t>(length(random)));
    // The last id, which ends documents, occurs at the end alone.
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab_size - 1));
    ids.back() = vocab_size - 1;
    const auto size = static_cast<std::int32_t>(ids.size());
    builder.add_document(ids, std::span(&size, 1));
  }
  builder.finalize();
}

struct Measurement {
  std::string prefix;  ///< "mock": mock data
  std::int64_t sequence_length, rows, num_batches, pause_ms, vocab_size;
};

OrderedJson measure(const Measurement& wanted) {
  DataConfig config;
  if (wanted.prefix == "mock") {
    config.mock_data = true;
  } else {
    config.data_path = {wanted.prefix};
  }
  config.split = "1,0,0";
  constexpr std::int64_t kFirst = 16;  // batches that are not counted
  DatasetRequest request{.sequence_length = wanted.sequence_length};
  request.num_samples = {(kFirst + wanted.num_batches + 64) * wanted.rows, 0, 0};
  request.tokenizer = {.vocab_size = wanted.vocab_size, .eod = wanted.vocab_size - 1};
  const std::shared_ptr<const Dataset> dataset = build_datasets(config, request).splits[0];
  MEGATRON_CHECK(dataset != nullptr, "no samples");
  DataLoader loader(
      dataset, {.sampler = {.micro_batch_size = wanted.rows}, .vocab_size = wanted.vocab_size});
  for (std::int64_t i = 0; i < kFirst; ++i) loader.next();
  std::vector<double> waits;
  const double cpu_begin = cpu_us();
  for (std::int64_t i = 0; i < wanted.num_batches; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(wanted.pause_ms));
    const auto begin = std::chrono::steady_clock::now();
    const bool has_batch = loader.next().has_value();
    const std::chrono::duration<double, std::micro> wait = std::chrono::steady_clock::now() - begin;
    MEGATRON_CHECK(has_batch, "too few samples");
    waits.push_back(wait.count());
  }
  const double cpu = (cpu_us() - cpu_begin) / static_cast<double>(wanted.num_batches);
  std::sort(waits.begin(), waits.end());
  return {{"wait_us", waits[waits.size() / 2]}, {"longest_wait_us", waits.back()}, {"cpu_us", cpu}};
}

int run(std::span<char*> words) {
  const auto number = [&](std::size_t i) -> std::int64_t { return std::stoll(words[i]); };
  if (words.size() == 5 && std::string_view(words[1]) == "make") {
    make(words[2], number(3), static_cast<std::int32_t>(number(4)));
    return 0;
  }
  if (words.size() != 7) {
    std::fputs("usage: loader_bench PREFIX SEQUENCE ROWS BATCHES PAUSE_MS VOCABULARY\n", stderr);
    return 2;
  }
  const OrderedJson result = measure({.prefix = words[1],
                                      .sequence_length = number(2),
                                      .rows = number(3),
                                      .num_batches = number(4),
                                      .pause_ms = number(5),
                                      .vocab_size = number(6)});
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run({words, static_cast<std::size_t>(count)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loader_bench: %s\n", error.what());
    return 1;
  }
}
