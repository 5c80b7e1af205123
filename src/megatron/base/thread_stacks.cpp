#include "megatron/base/thread_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxFrames = 64, kMaxThreads = 256;
/// The handler itself and the kernel's return frame, if it is unknown where the thread was.
constexpr std::size_t kHandlerFrames = 2;
constexpr std::chrono::milliseconds kAnswerTimeout{200};

/// State that the signal handler uses; it is global because signals are per process. A handler
/// writes `addresses` only after it has replaced its request, which is in `wanted`, by kClaimed.
std::mutex mutex;
constexpr std::uint64_t kNone = 0, kClaimed = ~std::uint64_t{0};
std::atomic<std::uint64_t> wanted{kNone}, answered{0};
std::uint64_t last_request = 0;  // guarded by `mutex`
std::array<void*, kMaxFrames> addresses;
std::atomic<void*> interrupted{nullptr};  ///< the instruction at which the thread was
std::atomic<int> num_addresses{0};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

int stack_signal() { return SIGRTMIN + 9; }

void* program_counter([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return reinterpret_cast<void*>(registers[REG_RIP]);  // NOLINT(performance-no-int-to-ptr)
#elif defined(__aarch64__)
  const auto counter = static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
  return reinterpret_cast<void*>(counter);  // NOLINT(performance-no-int-to-ptr)
#else
  return nullptr;
#endif
}

void handle_signal(int /*signal*/, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // A thread that answers too late must not overwrite the stack of the next one.
  const auto request = static_cast<std::uint64_t>(info->si_value.sival_int);
  std::uint64_t expected = request;
  if (wanted.compare_exchange_strong(expected, kClaimed)) {
    num_addresses = ::backtrace(addresses.data(), static_cast<int>(addresses.size()));
    interrupted = program_counter(context);
    answered = request;
  }
  errno = saved_errno;
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  MEGATRON_CHECK(::sigaction(stack_signal(), &action, nullptr) == 0,
                 "cannot install the signal handler for stacks");
  // The first call loads a library, which a signal handler must not do.
  std::array<void*, 4> frames;
  ::backtrace(frames.data(), static_cast<int>(frames.size()));
}

bool send_request(std::int64_t thread, std::uint64_t request) {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_value.sival_int = static_cast<int>(request);
  return ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), thread, stack_signal(), &info) == 0;
}

std::string library_name(const char* path) {
  return path != nullptr ? std::filesystem::path(path).filename().string() : "?";
}

std::string frame_text(const char* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return format("%p", static_cast<const void*>(address));
  if (info.dli_sname != nullptr) return function_name(info.dli_sname);
  const auto offset = address - static_cast<const char*>(info.dli_fbase);
  return library_name(info.dli_fname) + format("+0x%tx", offset);
}

std::string name_of_thread(std::int64_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// Requires `mutex`.
ThreadStack stack_of(std::int64_t thread) {
  ThreadStack stack{.thread = thread, .name = name_of_thread(thread), .frames = {}};
  // 31 bits travel with the signal.
  const std::uint64_t request = last_request = last_request % 0x7fffffff + 1;
  wanted = request;
  if (!send_request(thread, request)) return stack;
  const auto limit = std::chrono::steady_clock::now() + kAnswerTimeout;
  while (answered.load() != request) {
    // A request that no handler has claimed by then is withdrawn.
    std::uint64_t expected = request;
    if (std::chrono::steady_clock::now() > limit && wanted.compare_exchange_strong(expected, kNone))
      return stack;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  const auto count = static_cast<std::size_t>(num_addresses.load());
  // Sanitizers put frames of their own between the handler and the thread.
  const auto shown = std::span(addresses).first(count);
  const auto here = std::ranges::find(shown, interrupted.load());
  const std::size_t first = here != shown.end() ? static_cast<std::size_t>(here - shown.begin())
                                                : std::min(kHandlerFrames, count);
  // A return address may already belong to the next function; the call is just before it.
  for (std::size_t i = first; i < count; ++i)
    stack.frames.push_back(
        frame_text(static_cast<const char*>(addresses[i]) - (i > first ? 1 : 0)));
  return stack;
}

}  // namespace

std::vector<ThreadStack> thread_stacks() {
  const std::lock_guard lock(mutex);
  install_handler();
  const std::int64_t own = ::syscall(SYS_gettid), main = ::getpid();
  std::vector<std::int64_t> threads;
  std::error_code ended;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    const std::int64_t thread = std::atoll(entry.path().filename().c_str());
    if (thread != own && threads.size() < kMaxThreads) threads.push_back(thread);
  }
  std::ranges::sort(threads, {},
                    [&](std::int64_t thread) { return std::pair(thread != main, thread); });
  std::vector<ThreadStack> stacks;
  for (const std::int64_t thread : threads) stacks.push_back(stack_of(thread));
  return stacks;
}

ThreadStack main_thread_stack() {
  const std::lock_guard lock(mutex);
  install_handler();
  return stack_of(::getpid());
}

std::string short_stack(const ThreadStack& stack, std::size_t limit) {
  std::string text = stack.frames.empty() ? "" : stack.frames.front();
  std::size_t shown = 0;
  for (std::size_t i = 1; i < stack.frames.size() && shown < limit; ++i) {
    const std::string& frame = stack.frames[i];
    if (!frame.starts_with("megatron::") || frame == stack.frames[i - 1]) continue;
    text += " < " + frame;
    ++shown;
  }
  return text;
}

std::string function_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return symbol;
  // Cut the arguments: the first parenthesis outside of template arguments that begins no
  // "(anonymous namespace)".
  std::string name = readable.get();
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(anonymous)) != std::string::npos;)
    name.erase(at, anonymous.size());
  int depth = 0;
  std::size_t begin = 0;  // after the return type that names of templates have
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>' && depth > 0) --depth;
    if (name[i] == ' ' && depth == 0) begin = i + 1;
    const bool is_call_operator = std::string_view(name).substr(0, i).ends_with("operator");
    if (name[i] == '(' && depth == 0 && i > 0 && !is_call_operator)
      return name.substr(begin, i - begin);
  }
  return name;
}

}  // namespace megatron
