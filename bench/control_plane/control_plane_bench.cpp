// The control plane of a large run without the run: agents and ranks as threads that speak the real
// protocol over real sockets, in a few processes, because one may not have so many descriptors. It
// measures how long all ranks take to meet, and how long until each knows that one has died.
//   control_plane_bench [HOSTS] [RANKS_PER_HOST] [PROCESSES]
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/machine.h"
#include "megatron/control/agent.h"
#include "megatron/control/run_status.h"
#include "megatron/parallel/rendezvous/rendezvous.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kStackBytes = 256 << 10;
/// As the launcher and World do: an agent reports a killed rank after half a second and polls
/// twice a second; ranks wait for failures, and poll four times a second.
constexpr milliseconds kPostDelay{500}, kAgentInterval{500}, kWatchInterval{250};

constexpr milliseconds kPrintLimit{3'000}, kEndDelay{4'000};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return static_cast<double>(pages * 4096) / (1 << 20);
}

/// Makes the stacks of threads small, and raises the number of descriptors to what is allowed.
void prepare_process() {
  raise_open_file_limit();
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ::pthread_setattr_default_np(&attributes);
}

constexpr std::int64_t kMaxRanks = 1 << 17;

/// What the processes share. All members are zero at first.
struct Shared {
  std::atomic<std::int64_t> port, num_joined, num_met, num_know, num_ended, memory_kib;
  std::atomic<bool> dies, over;
  std::atomic<Clock::rep> death;
  std::array<std::atomic<double>, kMaxRanks> knows_s;  ///< by rank, since the death
};

Shared& make_shared_state() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("control_plane_bench: mmap");
    std::exit(2);
  }
  return *new (memory) Shared;
}

class Simulation {
 public:
  Simulation(std::int64_t hosts, std::int64_t ranks_per_host, std::int64_t processes)
      : hosts_(hosts), ranks_per_host_(ranks_per_host), processes_(processes) {}

  void run() {
    const Clock::time_point start = Clock::now();
    std::vector<pid_t> children;
    for (std::int64_t process = 0; process < processes_; ++process) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      run_process(process);
      std::_Exit(0);
    }
    wait_until([&] { return shared_.num_joined == hosts_; });
    const double joined_s = seconds_since(start);
    wait_until([&] { return shared_.num_met == world_size(); });
    const double met_s = seconds_since(start);
    std::this_thread::sleep_for(milliseconds(3'000));  // as in a run: the start is over
    shared_.death = Clock::now().time_since_epoch().count();
    shared_.dies = true;
    wait_until([&] { return shared_.num_know == world_size() - 1; });
    shared_.over = true;
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    report(joined_s, met_s);
  }

 private:
  std::int64_t world_size() const { return hosts_ * ranks_per_host_; }

  template <class Condition>
  static void wait_until(const Condition& condition) {
    while (!condition()) std::this_thread::sleep_for(milliseconds(2));
  }

  void report(double joined_s, double met_s) const {
    std::vector<double> knows_s;
    for (std::int64_t rank = 0; rank < world_size(); ++rank)
      if (rank != dying_rank())
        knows_s.push_back(shared_.knows_s.at(static_cast<std::size_t>(rank)));
    std::sort(knows_s.begin(), knows_s.end());
    std::printf("%ld ranks on %ld hosts\n", static_cast<long>(world_size()),
                static_cast<long>(hosts_));
    std::printf("  all agents have joined        %8.2f s\n", joined_s);
    std::printf("  all ranks have met            %8.2f s\n", met_s);
    std::printf("  a death is known: median      %8.2f s\n", knows_s[knows_s.size() / 2]);
    std::printf("  a death is known to all       %8.2f s\n", knows_s.back());
    std::printf("  sockets of the first launcher %8ld\n",
                static_cast<long>(hosts_ - 1 + ranks_per_host_ + 1));
    std::printf("  sockets of another launcher   %8ld\n", static_cast<long>(ranks_per_host_ + 2));
    std::printf("  memory of agent and ranks     %8ld KiB a host\n",
                static_cast<long>(shared_.memory_kib / hosts_));
  }

  /// Runs every host whose number is `process` modulo the number of processes.
  void run_process(std::int64_t process) {
    prepare_process();
    const double before_mib = resident_mib();
    std::vector<std::thread> threads;
    for (std::int64_t host = process; host < hosts_; host += processes_)
      threads.emplace_back([this, host] { run_host(host); });
    wait_until([&] { return shared_.num_met == world_size(); });
    shared_.memory_kib += static_cast<std::int64_t>((resident_mib() - before_mib) * 1024);
    for (std::thread& thread : threads) thread.join();
  }

  Clock::time_point death() const { return Clock::time_point(Clock::duration(shared_.death)); }

  void run_host(std::int64_t host) {
    if (host != 0) wait_until([&] { return shared_.port != 0; });
    AgentOptions options{.master_port = shared_.port,
                         .token = "secret",
                         .node_rank = host,
                         .num_ranks = ranks_per_host_};
    options.membership = {.min_hosts = hosts_, .max_hosts = hosts_};
    const std::unique_ptr<Agent> agent = Agent::join(options);
    if (host == 0) shared_.port = agent->store_port();
    const std::int64_t dying_host = hosts_ / 2;
    const int interval_ms = host == dying_host ? 20 : static_cast<int>(kAgentInterval.count());
    const auto serve = [&] {
      pollfd event{agent->descriptor(), POLLIN, 0};
      ::poll(&event, 1, interval_ms);
      agent->serve();
    };
    while (agent->decision().kind != Decision::Kind::run) serve();
    ++shared_.num_joined;
    std::vector<std::thread> ranks;
    for (std::int64_t local = 0; local < ranks_per_host_; ++local)
      ranks.emplace_back(
          [this, host, local, port = agent->store_port()] { run_rank(host, local, port); });
    for (bool is_posted = false; !shared_.over;) {
      serve();
      if (host != dying_host || !shared_.dies || Clock::now() - death() < kPostDelay || is_posted)
        continue;
      is_posted = true;
      agent->post_failure(1, {dying_rank(), "host", 1, "error: was killed", true});
    }
    // The ranks still read from this agent.
    std::atomic<bool> ended = false;
    std::thread joiner([&] {
      for (std::thread& rank : ranks) rank.join();
      ended = true;
    });
    while (!ended) serve();
    joiner.join();
    ++shared_.num_ended;
    while (host == 0 && shared_.num_ended < hosts_) serve();
  }

  std::int64_t dying_rank() const { return hosts_ / 2 * ranks_per_host_; }

  void run_rank(std::int64_t host, std::int64_t local, std::int64_t port) {
    const LaunchEnvironment environment{.rank = host * ranks_per_host_ + local,
                                        .world_size = world_size(),
                                        .local_rank = local,
                                        .local_world_size = ranks_per_host_,
                                        .node_rank = host,
                                        .num_nodes = hosts_,
                                        .source = "megatron launch",
                                        .job_token = "secret",
                                        .launcher_addr = "127.0.0.1",
                                        .own_addr = "10.0.0.1",
                                        .launcher_port = port};
    RunStore store = open_store(environment, {});
    RunStatus status(store, environment.world_size);
    const RunHosts hosts =
        rendezvous(environment, store, status,
                   {.progress = [](const std::string&) {}, .host = "node" + std::to_string(host)});
    if (hosts.names.size() != static_cast<std::size_t>(hosts_)) std::abort();
    status.report_disconnect_of(environment.rank);
    ++shared_.num_met;
    while (true) {
      const bool has_changed = status.wait_for_change(environment.rank == 0, kWatchInterval);
      if (environment.rank == dying_rank() && shared_.dies) return;
      if (has_changed && status.watched_first()) break;
    }
    shared_.knows_s.at(static_cast<std::size_t>(environment.rank)) = seconds_since(death());
    ++shared_.num_know;
    // As World does: rank 0 prints the failure, and the others end once it has. Not before all
    // know, because each host has its own cores for that, and this machine has a few for all.
    std::this_thread::sleep_for(kEndDelay);
    if (environment.rank == 0)
      status.set_printed();
    else
      status.wait_until_printed(kPrintLimit);
    status.leave(environment.rank);
  }

  const std::int64_t hosts_, ranks_per_host_, processes_;
  Shared& shared_ = make_shared_state();
};

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  const auto number = [&](int index, std::int64_t otherwise) {
    return argc > index ? std::atoll(argv[index]) : otherwise;
  };
  const std::int64_t hosts = number(1, 1250), ranks = number(2, 8), processes = number(3, 4);
  if (hosts < 2 || ranks < 1 || processes < 1 || hosts * ranks > megatron::kMaxRanks) {
    std::fprintf(stderr, "usage: control_plane_bench [HOSTS] [RANKS_PER_HOST] [PROCESSES]\n");
    return 2;
  }
  megatron::Simulation(hosts, ranks, processes).run();
  return 0;
}
