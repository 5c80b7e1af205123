// Implements `megatron tokenize`: converts lines on stdin to JSON arrays of ids, and back.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/cli/command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

struct TokenizeOptions {
  TokenizerConfig tokenizer;
  bool decode = false;
  bool keep_special_tokens = false;
};

const FieldTable<TokenizeOptions>& tokenize_table() {
  static const FieldTable<TokenizeOptions> table = [] {
    FieldTable<TokenizeOptions> t;
    t.about(
        "Reads lines from stdin and prints the ids of each as a JSON array. With --decode, reads "
        "arrays and prints text.");
    t.include(&TokenizeOptions::tokenizer, tokenizer_table());
    t.group("Direction");
    t.field("decode", &TokenizeOptions::decode, "read JSON arrays of ids and print their text");
    t.field("keep_special_tokens", &TokenizeOptions::keep_special_tokens,
            "with --decode: print special tokens too");
    return t;
  }();
  return table;
}

/// Reads lines from stdin and returns each as soon as it is complete, so that a program that writes
/// one line and waits for its answer does not block.
class LineReader {
 public:
  bool next(std::string_view& line) {
    for (;;) {
      const std::size_t end = buffer_.find('\n', searched_);
      if (end != std::string::npos) return take(line, end, 1);
      searched_ = buffer_.size();
      if (at_end_) return begin_ < buffer_.size() && take(line, buffer_.size(), 0);
      fill();
    }
  }
  /// Returns whether the buffer contains another complete line.
  bool has_more() const { return buffer_.find('\n', searched_) != std::string::npos; }

 private:
  bool take(std::string_view& line, std::size_t end, std::size_t newline) {
    line = std::string_view(buffer_).substr(begin_, end - begin_);
    begin_ = searched_ = end + newline;
    return true;
  }
  void fill() {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    const std::size_t size = buffer_.size();
    buffer_.resize(size + kBlock);
    ssize_t count = -1;
    do count = ::read(STDIN_FILENO, buffer_.data() + size, kBlock);
    while (count < 0 && errno == EINTR);
    buffer_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) throw UserError({"cannot read stdin", std::strerror(errno), ""});
    at_end_ = count == 0;
  }

  static constexpr std::size_t kBlock = std::size_t{1} << 18;
  std::string buffer_;
  std::size_t begin_ = 0, searched_ = 0;
  bool at_end_ = false;
};

void append_json(std::string& out, std::span<const std::int32_t> ids) {
  char digits[12];
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out.append(digits, static_cast<std::size_t>(
                           std::to_chars(digits, digits + sizeof digits, ids[i]).ptr - digits));
  }
  out += ']';
}

std::vector<std::int32_t> parse_ids(std::string_view line, std::size_t number,
                                    std::int64_t vocab_size) {
  const std::string source = "stdin, line " + std::to_string(number);
  const Json array = parse_json(line, source);
  if (!array.is_array())
    throw UserError({source + " must be a JSON array of ids", std::string(array.type_name()), ""});
  std::vector<std::int32_t> ids;
  for (const Json& id : array) {
    if (!id.is_number_integer() || !(id >= 0 && id < vocab_size))
      throw UserError(
          {source + ": ids must be integers from 0 to " + std::to_string(vocab_size - 1), id.dump(),
           ""});
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> encode_line(const Tokenizer& tokenizer, std::string_view line,
                                      std::size_t number) {
  try {
    return tokenizer.encode(line);
  } catch (const UserError& error) {
    throw UserError({"stdin, line " + std::to_string(number) + ": " + error.parts().what,
                     error.parts().got, error.parts().fix});
  }
}

}  // namespace

const FieldSet& tokenize_fields() { return tokenize_table().set(); }

int run_tokenize(std::span<const std::string> args) {
  TokenizeOptions options;
  parse_command_line(tokenize_table(), args, options, "tokenize");
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto special = options.keep_special_tokens ? SpecialTokens::keep : SpecialTokens::skip;
  LineReader reader;
  std::string_view line;
  std::string out;
  for (std::size_t number = 1; reader.next(line) && std::cout; ++number) {
    out.clear();
    if (options.decode) {
      out = tokenizer->decode(parse_ids(line, number, tokenizer->vocab_size()), special);
    } else {
      append_json(out, encode_line(*tokenizer, line, number));
    }
    out += '\n';
    std::cout.write(out.data(), static_cast<std::streamsize>(out.size()));
    if (!reader.has_more()) std::cout.flush();
  }
  return 0;
}

}  // namespace megatron
