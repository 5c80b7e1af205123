#include "megatron/training/startup_report.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "megatron/base/format.h"

namespace megatron {
namespace {

std::string argument_line(const std::string& name, const std::string& value) {
  const std::string dots(name.size() < 48 ? 48 - name.size() : 0, '.');
  return "  " + name + " " + dots + " " + value + "\n";
}

bool less_without_case(const std::string& left, const std::string& right) {
  return std::ranges::lexicographical_compare(
      left, right, {}, [](unsigned char c) { return std::tolower(c); }, [](unsigned char c) { return std::tolower(c); });
}

}  // namespace

std::string argument_dump(const FieldSet& fields, const void* object) {
  std::vector<std::string> lines;
  for (const Field& field : fields.fields) {
    if (!field.is_hidden) lines.push_back(argument_line(field.name, join_values(field.get(object))));
  }
  std::ranges::sort(lines, less_without_case);
  std::string text = "------------------------ arguments ------------------------\n";
  for (const std::string& line : lines) text += line;
  return text + "-------------------- end of arguments ---------------------";
}

std::string world_line() {
  return "using world size: 1, data-parallel size: 1, context-parallel size: 1, hierarchical context-parallel sizes: None, "
         "tensor-model-parallel size: 1, pipeline-model-parallel size: 1";
}

std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size) {
  using Integer = long long;
  return format(" > padded vocab (size: %lld) with %lld dummy tokens (new size: %lld)", Integer{vocab_size}, Integer{padded_size - vocab_size},
                Integer{padded_size});
}

std::string dataset_sizes_block(const std::array<std::int64_t, 3>& samples) {
  return "> building train, validation, and test datasets ...\n > datasets target sizes (minimum size):\n    train:      " +
         std::to_string(samples[0]) + "\n    validation: " + std::to_string(samples[1]) + "\n    test:       " + std::to_string(samples[2]);
}

std::string parameter_count_line(std::int64_t parameters) {
  return " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): " + std::to_string(parameters);
}

}  // namespace megatron
