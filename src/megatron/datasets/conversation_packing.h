// Chooses which conversations of a file share a sequence, and counts the padding and the tokens
// that are cut off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/npy.h"
#include "megatron/datasets/packing.h"
#include "megatron/datasets/prompt_format.h"

namespace megatron {

/// The numbers of tokens of every conversation of some lines.
struct ConversationLengths {
  NpyArray line_begins;  ///< [lines + 1]: the first conversation of each line, then their number
  NpyArray lengths;      ///< int32 [conversations]
  NpyArray unlabeled;    ///< int32 [conversations]: tokens before the first that has a loss
  std::int64_t num_lines() const { return line_begins.size() - 1; }
};

/// Tokenizes the lines on several threads. UserErrors are those of PromptFormat::tokenize(); of
/// several broken lines, the first is named.
ConversationLengths count_tokens(const ConversationFile& file, std::span<const std::int64_t> lines,
                                 const PromptFormat& format);

struct SequenceLayout {
  std::int64_t sequence_length = 0;
  std::int64_t row_multiple = 1;  ///< conversations are filled up to multiples of this
};

/// A part of a conversation, which a sequence holds whole.
struct ConversationPiece {
  std::int64_t line = 0;          ///< counted from the first of the lengths
  std::int32_t conversation = 0;  ///< number in its line
  std::int32_t begin = 0;         ///< the first token of the part
  std::int32_t tokens = 0;        ///< tokens of the part
  std::int32_t whole_tokens = 0;  ///< tokens of the conversation
};

struct PackedConversations {
  std::vector<ConversationPiece> pieces;
  Packing rows;  ///< which pieces share a sequence
};

/// Packs with the strategy bfd or bfd_split. Conversations without tokens are left out.
PackedConversations pack_conversations(const ConversationLengths& lengths, PackingStrategy strategy,
                                       const SequenceLayout& layout);

/// Counts what a strategy makes of the conversations, without `is_used`.
PackingShare packing_share(const ConversationLengths& lengths, PackingStrategy strategy,
                           const SequenceLayout& layout);

}  // namespace megatron
