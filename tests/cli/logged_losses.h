// Reads the losses of a run from its log.
#pragma once

#include <cstdint>
#include <map>
#include <regex>
#include <string>

namespace megatron {

/// Maps an iteration to its "lm loss: … grad norm: …" in the log.
using Losses = std::map<std::int64_t, std::string>;

/// Returns the complete lines of the text.
inline Losses losses_in(const std::string& log) {
  static const std::regex line(
      R"( iteration +([0-9]+)/[^\n]*(lm loss: [^ ]+) [^\n]*(grad norm: [^ ]+)[^\n]*\n)");
  Losses found;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i)
    found[std::stoll((*i)[1])] = (*i)[2].str() + " " + (*i)[3].str();
  return found;
}

}  // namespace megatron
