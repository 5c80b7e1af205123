#include "megatron/parallel/gather_names.h"

#include <set>

#include "megatron/parallel/object_collectives.h"

namespace megatron {

std::vector<std::string> all_gather_unique_names(const Axis& axis,
                                                 const std::vector<std::string>& names,
                                                 c10::Device device) {
  std::string mine;
  for (const std::string& name : names) mine += name + '\n';
  std::set<std::string> all;
  for (const std::string& text : all_gather_strings(axis, mine, device)) {
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      all.insert(text.substr(begin, end - begin));
  }
  return {all.begin(), all.end()};
}

}  // namespace megatron
