// Times the document, sample and shuffle index of a corpus: sample_index_bench LENGTHS SEQUENCE
// SAMPLES SEED. LENGTHS is a file of int32, the tokens of each document. Prints JSON with the
// seconds, the CPU time, the peak of resident memory in MiB, and a checksum of each array.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/datasets/gpt_index.h"

namespace {

using namespace megatron;

/// Every value has four bytes for fewer than 2^31 documents and samples.
std::string checksum_of(const NpyArray& array) {
  std::vector<std::uint32_t> values(static_cast<std::size_t>(array.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint32_t>(array.at(static_cast<std::int64_t>(i)));
  return checksum_hex(checksum(std::as_bytes(std::span(values))));
}

int run(const char* lengths, std::int64_t sequence, std::int64_t samples, std::uint32_t seed) {
  const MappedFile file(lengths);
  const UnalignedView<std::int32_t> view(file.bytes().data(), file.size() / sizeof(std::int32_t));
  const auto begin = std::chrono::steady_clock::now();
  const GptIndex index =
      build_gpt_index({.lengths = view,
                       .begin = 0,
                       .end = static_cast<std::int64_t>(view.size()),
                       .num_samples = samples > 0 ? std::optional(samples) : std::nullopt,
                       .sequence_length = sequence,
                       .seed = seed});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto cpu_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const OrderedJson result = {{"seconds", seconds.count()},
                              {"cpu_s", cpu_seconds(usage.ru_utime) + cpu_seconds(usage.ru_stime)},
                              {"peak_mib", usage.ru_maxrss / 1024},
                              {"documents", index.document_index.size()},
                              {"samples", index.shuffle_index.size()},
                              {"checksums",
                               {checksum_of(index.document_index), checksum_of(index.sample_index),
                                checksum_of(index.shuffle_index)}}};
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fputs("usage: sample_index_bench LENGTHS SEQUENCE SAMPLES SEED\n", stderr);
    return 2;
  }
  return run(words[1], std::atoll(words[2]), std::atoll(words[3]),
             static_cast<std::uint32_t>(std::atoll(words[4])));
}
