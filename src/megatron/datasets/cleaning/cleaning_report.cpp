#include "megatron/datasets/cleaning/cleaning_report.h"

#include "megatron/base/json_text.h"

namespace megatron {

void CleaningReport::add_removed(std::string_view rule, std::uint64_t text_bytes,
                                 const std::string& example) {
  Removed& entry = removed[std::string(rule)];
  ++entry.documents;
  entry.bytes += text_bytes;
  if (entry.examples.size() < kMostExamples) entry.examples.push_back(example);
}

CleaningReport::Removed CleaningReport::total() const {
  Removed sum;
  for (const auto& [rule, entry] : removed) {
    sum.documents += entry.documents;
    sum.bytes += entry.bytes;
  }
  return sum;
}

JsonText to_json(const CleaningReport& report) {
  JsonText rules = JsonText::object();
  for (const auto& [rule, entry] : report.removed)
    rules[rule] = {
        {"documents", entry.documents}, {"bytes", entry.bytes}, {"examples", entry.examples}};
  const CleaningReport::Removed total = report.total();
  return {{"documents", report.documents},
          {"bytes", report.bytes},
          {"removed_documents", total.documents},
          {"removed_bytes", total.bytes},
          {"removed", std::move(rules)}};
}

}  // namespace megatron
