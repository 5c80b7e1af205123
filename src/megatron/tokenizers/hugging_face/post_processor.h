// tokenizer.json's "post_processor": what stands before and after the ids of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/json.h"

namespace megatron::hugging_face {

/// The template of a single text. Default: the ids alone.
class PostProcessor {
 public:
  PostProcessor() = default;
  /// `where` names file and field in errors; ids must be below `id_limit`. Null is the default.
  PostProcessor(const Json& component, std::int32_t id_limit, const std::string& where);

  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids) const;

 private:
  void add(const Json& component, const std::string& where);
  void add_template(const Json& component, const std::string& where);
  void add_sep_and_cls(const Json& component, const std::string& where);
  std::int32_t checked(const Json& id, const std::string& where) const;

  std::int32_t id_limit_ = 0;
  std::vector<std::int32_t> before_, after_;
};

}  // namespace megatron::hugging_face
