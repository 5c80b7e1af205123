// Encodes several texts on several threads.
#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

std::vector<std::vector<std::int32_t>> encode_batch(const Tokenizer& tokenizer,
                                                    std::span<const std::string_view> texts,
                                                    std::int64_t workers) {
  MEGATRON_CHECK(workers >= 1, "encode_batch() with ", workers, " workers");
  using Ids = std::vector<std::int32_t>;
  std::size_t next = 0;
  OrderedPool<std::string_view, Ids> pool(
      {.workers = workers > 1 ? workers : 0, .depth = 16 * workers},
      [&]() -> std::optional<std::string_view> {
        return next < texts.size() ? std::optional(texts[next++]) : std::nullopt;
      },
      [&](std::string_view text) { return tokenizer.encode(text); });
  std::vector<Ids> ids;
  ids.reserve(texts.size());
  while (std::optional<Ids> one = pool.next()) ids.push_back(*std::move(one));
  return ids;
}

}  // namespace megatron
