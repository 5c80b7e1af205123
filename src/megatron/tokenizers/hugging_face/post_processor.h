// The "post_processor" of tokenizer.json, which adds ids before and after those of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// The template for a single text. The default adds nothing.
class PostProcessor {
 public:
  PostProcessor() = default;
  /// Reads a component; null gives the default. Ids must be below `id_limit`.
  PostProcessor(const JsonCursor& component, std::int32_t id_limit);

  /// Makes apply() add nothing.
  void leave_out_ids() { before_.clear(), after_.clear(); }

  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids) const;

 private:
  void add(const JsonCursor& component);
  void add_template(const JsonCursor& component);
  void add_sep_and_cls(const JsonCursor& component);
  std::int32_t checked(const Json& id, const std::string& where) const;

  std::int32_t id_limit_ = 0;
  std::vector<std::int32_t> before_, after_;
};

}  // namespace megatron::hugging_face
