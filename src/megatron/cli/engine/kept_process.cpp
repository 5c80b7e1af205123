#include "megatron/cli/engine/kept_process.h"

#include <malloc.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/config/launch_environment.h"
#include "megatron/control/rank_link.h"

namespace megatron {

int run_starts(const std::function<int()>& start) {
  const std::optional<int> link = find_launch_environment().process_link;
  const std::vector<int> cpus = allowed_cpu_numbers();  // before the rank is pinned to its share
  while (true) {
    const int code = start();
    if (!link || code == 0 || code == 2) return code;
    std::cout.flush();
    std::fflush(nullptr);
    ::malloc_trim(0);               // the next start may get its memory from other arenas
    std::signal(SIGUSR2, SIG_IGN);  // until the next start can answer
    const auto variables = offer_process(*link, code);
    if (!variables) return code;
    allow_cpus(cpus);  // they are divided again
    for (const auto& [name, value] : *variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace megatron
