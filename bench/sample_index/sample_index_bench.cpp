// Times the document, sample and shuffle index of a corpus: sample_index_bench LENGTHS SEQUENCE
// SAMPLES SEED. LENGTHS is a file of int32, the tokens of each document. Prints JSON with the
// seconds, the CPU time, the peak of resident memory in MiB, and a checksum of each array. With
// `pack LENGTHS SEQUENCE` it times best-fit packing, and prints the number of sequences and the
// share of padding.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/datasets/gpt_index.h"
#include "megatron/datasets/packed_documents.h"

namespace {

using namespace megatron;

/// Every value has four bytes for fewer than 2^31 documents and samples.
std::string checksum_of(const NpyArray& array) {
  std::vector<std::uint32_t> values(static_cast<std::size_t>(array.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint32_t>(array.at(static_cast<std::int64_t>(i)));
  return checksum_hex(checksum(std::as_bytes(std::span(values))));
}

/// Times one call. Its memory and its time on the CPU are those of the process up to now.
class Stopwatch {
 public:
  OrderedJson result() const {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto cpu_seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return {{"seconds", seconds.count()},
            {"cpu_s", cpu_seconds(usage.ru_utime) + cpu_seconds(usage.ru_stime)},
            {"peak_mib", usage.ru_maxrss / 1024}};
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

UnalignedView<std::int32_t> lengths_of(const MappedFile& file) {
  return {file.bytes().data(), file.size() / sizeof(std::int32_t)};
}

int time_order(const char* lengths, std::int64_t sequence, std::int64_t samples,
               std::uint32_t seed) {
  const MappedFile file(lengths);
  const Stopwatch watch;
  const GptIndex index =
      build_gpt_index({.lengths = lengths_of(file),
                       .begin = 0,
                       .end = static_cast<std::int64_t>(lengths_of(file).size()),
                       .num_samples = samples > 0 ? std::optional(samples) : std::nullopt,
                       .sequence_length = sequence,
                       .seed = seed});
  OrderedJson result = watch.result();
  result["documents"] = index.document_index.size();
  result["samples"] = index.shuffle_index.size();
  result["checksums"] = {checksum_of(index.document_index), checksum_of(index.sample_index),
                         checksum_of(index.shuffle_index)};
  std::puts(result.dump().c_str());
  return 0;
}

int time_packing(const char* lengths, std::int64_t sequence) {
  const MappedFile file(lengths);
  const DocumentPackingInput input{.lengths = lengths_of(file),
                                   .begin = 0,
                                   .end = static_cast<std::int64_t>(lengths_of(file).size()),
                                   .sequence_length = sequence};
  const Stopwatch watch;
  const PackedDocuments packed = pack_documents(input);
  OrderedJson result = watch.result();
  const PackingShare share = packing_share(input, packed.num_sequences());
  result["sequences"] = share.sequences;
  result["padding_share"] =
      static_cast<double>(share.padding) / static_cast<double>(share.sequences * sequence);
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count == 4 && std::strcmp(words[1], "pack") == 0)
      return time_packing(words[2], std::atoll(words[3]));
    if (count == 5)
      return time_order(words[1], std::atoll(words[2]), std::atoll(words[3]),
                        static_cast<std::uint32_t>(std::atoll(words[4])));
    std::fputs("usage: sample_index_bench [pack] LENGTHS SEQUENCE [SAMPLES SEED]\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 2;
}
