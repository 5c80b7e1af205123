#include "megatron/transformer/model_names.h"

#include <set>

#include "megatron/parallel/gather_texts.h"

namespace megatron {

std::vector<std::string> model_names(const ParamStore& store) {
  std::string mine;
  for (const Parameter* parameter : store.parameters()) mine += parameter->name() + '\n';
  std::set<std::string> names;
  for (const std::string& text : gather_texts(store.model_axis(), mine, store.device())) {
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      names.insert(text.substr(begin, end - begin));
  }
  return {names.begin(), names.end()};
}

}  // namespace megatron
