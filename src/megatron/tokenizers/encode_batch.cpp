// Encodes several texts on several threads.
#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/thread_limit.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

std::vector<std::vector<std::int32_t>> encode_batch(const Tokenizer& tokenizer,
                                                    std::span<const std::string_view> texts,
                                                    std::int64_t workers) {
  MEGATRON_CHECK(workers >= 1, "encode_batch() with ", workers, " workers");
  std::vector<std::vector<std::int32_t>> ids(texts.size());
  std::vector<std::exception_ptr> errors(texts.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) {
      try {
        ids[i] = tokenizer.encode(texts[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    const std::int64_t count = std::min(workers, std::ssize(texts));
    std::vector<std::jthread> threads;
    try {
      for (std::int64_t i = 1; i < count; ++i) threads.emplace_back(work);
    } catch (const std::system_error& error) {
      next = texts.size();
      throw thread_error("a thread that encodes texts", error);
    }
    work();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return ids;
}

}  // namespace megatron
