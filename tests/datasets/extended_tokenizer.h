// A tokenizer of tests/tokenizers/fixtures with special tokens of a test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/temporary_folder.h"

namespace megatron::test {

/// Opens the fixture `name` with the special tokens that it lacks behind its ids, as
/// make_fim_fixtures.py does.
std::shared_ptr<const Tokenizer> with_tokens(const std::string& name,
                                             const std::vector<std::string>& tokens,
                                             const TemporaryFolder& folder);

}  // namespace megatron::test
