// Times all_reduce of float32 sums by size over one transport, and prints a JSON line for each size
// (run.py compares it with PyTorch's Gloo).
//   collectives_bench threads RANKS | collectives_bench shared-memory|gloo RANKS RANK PORT |
//   collectives_bench memcpy
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/control/connect_to_store.h"
#include "megatron/parallel/process_communicators.h"
#include "megatron/parallel/rank_threads.h"
#include "program.h"

namespace megatron {
namespace {

constexpr std::int64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

int repeats_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((256 << 20) / bytes, 5, 300));
}

/// Returns the median seconds of `body`. The first two calls are not counted.
template <class Body>
double median_seconds(int repeats, const Body& body) {
  std::vector<double> seconds;
  for (int i = -2; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i >= 0) seconds.push_back(time.count());
  }
  return bench::median(seconds);
}

void print(const std::string& transport, std::int64_t ranks, std::int64_t bytes, double seconds) {
  std::printf("{\"transport\": \"%s\", \"ranks\": %ld, \"bytes\": %ld, \"seconds\": %.9f}\n",
              transport.c_str(), ranks, bytes, seconds);
  std::fflush(stdout);
}

void time_all_reduce(const std::string& transport, Communicators& world) {
  at::set_num_threads(1);
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < world.world_size(); ++rank) ranks.push_back(rank);
  const auto comm = world.group(ranks, "dp");
  for (const std::int64_t bytes : kSizes) {
    const at::Tensor tensor = at::zeros({bytes / 4});
    const double seconds =
        median_seconds(repeats_of(bytes), [&] { comm->all_reduce(tensor, "bench"); });
    if (world.rank() == 0) print(transport, world.world_size(), bytes, seconds);
  }
}

void time_memcpy() {
  for (const std::int64_t bytes : kSizes) {
    std::vector<char> from(static_cast<std::size_t>(bytes), 1), to(from.size());
    print("memcpy", 1, bytes, median_seconds(repeats_of(bytes), [&] {
            std::memcpy(to.data(), from.data(), from.size());
          }));
  }
}

void time_processes(const std::string& transport, std::int64_t ranks, std::int64_t rank, int port) {
  constexpr std::chrono::minutes kTimeout{5};
  RunStore store =
      rank == 0 ? RunStore::host(ListeningSocket({.port = port, .loopback_only = true}), kTimeout)
                : RunStore(connect_to_store({"127.0.0.1", port}, {.timeout = kTimeout}));
  const CpuTransport chosen =
      transport == "gloo" ? CpuTransport::gloo : CpuTransport::shared_memory;
  const auto world = make_process_communicators(
      store, {.rank = rank, .world_size = ranks, .cpu_transport = chosen});
  time_all_reduce(transport, *world);
  if (store.add("done", 1); rank != 0) return;
  while (store.add("done", 0) < ranks) {  // the store lives in rank 0
  }
}

void run(const std::vector<std::string>& words) {
  const std::string transport = words.empty() ? "" : words[0];
  if (transport == "memcpy") {
    time_memcpy();
  } else if (transport == "threads" && words.size() == 2) {
    run_rank_threads(std::stoll(words[1]),
                     [](Communicators& world) { time_all_reduce("threads", world); });
  } else if ((transport == "shared-memory" || transport == "gloo") && words.size() == 4) {
    time_processes(transport, std::stoll(words[1]), std::stoll(words[2]), std::stoi(words[3]));
  } else {
    throw std::invalid_argument(
        "usage: collectives_bench memcpy | threads RANKS | shared-memory|gloo RANKS RANK PORT");
  }
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
