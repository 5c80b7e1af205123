#include "megatron/datasets/conversation_packing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/datasets/parallel_for.h"

namespace megatron {
namespace {

/// Returns how many positions of a sequence a conversation of `tokens` takes.
std::int64_t padded(std::int64_t tokens, const SequenceLayout& layout) {
  return (tokens + layout.row_multiple - 1) / layout.row_multiple * layout.row_multiple;
}

/// Calls visit(line, conversation, tokens) for each conversation.
template <class Visit>
void for_each_conversation(const ConversationLengths& lengths, const Visit& visit) {
  for (std::int64_t line = 0; line < lengths.num_lines(); ++line) {
    const std::int64_t begin = lengths.line_begins.at(line);
    for (std::int64_t i = begin; i < lengths.line_begins.at(line + 1); ++i)
      visit(line, static_cast<std::int32_t>(i - begin),
            static_cast<std::int32_t>(lengths.lengths.at(i)));
  }
}

}  // namespace

ConversationLengths count_tokens(const ConversationFile& file, std::span<const std::int64_t> lines,
                                 const PromptFormat& format) {
  constexpr std::size_t kBlock = 64;
  struct Count {
    std::ptrdiff_t tokens, unlabeled;
  };
  std::vector<std::vector<Count>> counts(lines.size());
  parallel_for((lines.size() + kBlock - 1) / kBlock, [&](std::size_t block) {
    for (std::size_t i = block * kBlock; i < std::min(lines.size(), (block + 1) * kBlock); ++i) {
      const std::string where = file.describe(lines[i]);
      for (const Conversation& conversation : split_conversations(file.messages(lines[i]))) {
        const auto targets = format.tokenize(conversation, where).targets;
        const auto label = std::ranges::find_if(targets, [](auto t) { return t != kIgnoredLabel; });
        counts[i].push_back({std::ssize(targets), label - targets.begin()});
      }
    }
  });
  std::vector<std::int64_t> line_begins{0};
  std::vector<std::int32_t> lengths, unlabeled;
  for (const std::vector<Count>& line : counts) {
    for (const Count& count : line) {
      lengths.push_back(static_cast<std::int32_t>(count.tokens));
      unlabeled.push_back(static_cast<std::int32_t>(count.unlabeled));
    }
    line_begins.push_back(static_cast<std::int64_t>(lengths.size()));
  }
  return {NpyArray(std::move(line_begins)), NpyArray(std::move(lengths)),
          NpyArray(std::move(unlabeled))};
}

PackedConversations pack_conversations(const ConversationLengths& lengths, PackingStrategy strategy,
                                       const SequenceLayout& layout) {
  MEGATRON_CHECK(strategy != PackingStrategy::line, "lines are not packed");
  const std::int64_t capacity = layout.sequence_length;
  PackedConversations packed;
  std::vector<std::int32_t> sizes;
  for_each_conversation(
      lengths, [&](std::int64_t line, std::int32_t conversation, std::int32_t whole) {
        for (std::int64_t begin = 0; begin < whole; begin += capacity) {
          const std::int64_t tokens = std::min<std::int64_t>(whole - begin, capacity);
          packed.pieces.push_back({.line = line,
                                   .conversation = conversation,
                                   .begin = static_cast<std::int32_t>(begin),
                                   .tokens = static_cast<std::int32_t>(tokens),
                                   .whole_tokens = whole});
          sizes.push_back(static_cast<std::int32_t>(std::min(padded(tokens, layout), capacity)));
          if (strategy == PackingStrategy::bfd) break;
        }
      });
  packed.rows = pack_best_fit_decreasing(sizes, capacity);
  return packed;
}

PackingShare packing_share(const ConversationLengths& lengths, PackingStrategy strategy,
                           const SequenceLayout& layout) {
  PackingShare share{.strategy = std::string(packing_strategy_name(strategy)),
                     .documents = lengths.num_lines()};
  std::int64_t all_tokens = 0, of_line = -1, filled = 0, number = 0;
  for_each_conversation(lengths, [&](std::int64_t line, std::int32_t, std::int32_t tokens) {
    all_tokens += tokens;
    if (strategy != PackingStrategy::line || std::exchange(of_line, line) != line) filled = 0;
    const std::int64_t room = layout.sequence_length - filled,
                       kept = strategy == PackingStrategy::bfd_split
                                  ? tokens
                                  : std::clamp<std::int64_t>(room, 0, tokens);
    share.tokens += kept;
    share.unlabeled += lengths.unlabeled.at(number++) >= kept ? 1 : 0;
    filled += padded(tokens, layout);
  });
  share.sequences =
      strategy == PackingStrategy::line
          ? lengths.num_lines()
          : static_cast<std::int64_t>(pack_conversations(lengths, strategy, layout).rows.size());
  share.truncated = all_tokens - share.tokens;
  share.padding = share.sequences * layout.sequence_length - share.tokens;
  return share;
}

}  // namespace megatron
