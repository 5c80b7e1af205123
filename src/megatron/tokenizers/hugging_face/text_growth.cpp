#include "megatron/tokenizers/hugging_face/text_growth.h"

#include <string>

#include "megatron/base/error.h"

namespace megatron::hugging_face {
namespace {

constexpr std::size_t kLargestGrowth = 100;
constexpr std::size_t kAlwaysAllowedBytes = 64 << 10;

}  // namespace

void check_growth(std::size_t original, std::size_t size) {
  if (size <= kAlwaysAllowedBytes || size / kLargestGrowth <= original) return;
  throw UserError({"the components of tokenizer.json make a text more than " +
                       std::to_string(kLargestGrowth) + " times as long",
                   std::to_string(original) + " bytes become " + std::to_string(size),
                   "check the components of type Replace and ByteLevel"});
}

}  // namespace megatron::hugging_face
