#include "megatron/metrics/exposition_writer.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return format("%.17g", value);
}

}  // namespace

std::string labels(std::initializer_list<std::pair<std::string_view, std::string>> pairs) {
  return "{" +
         joined_text(pairs, ",",
                     [](const auto& pair) {
                       return std::string(pair.first) + "=\"" +
                              escaped_text(pair.second,
                                           {{'\\', "\\\\"}, {'"', "\\\""}, {'\n', "\\n"}}) +
                              "\"";
                     }) +
         "}";
}

void BucketCounts::add(double value, std::int64_t times) {
  const auto range = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<std::size_t>(range)] += times;
  sum_ += value * static_cast<double>(times);
}

void ExpositionWriter::family(const std::string& name, const char* type, const char* help) {
  name_ = name;
  text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void ExpositionWriter::sample(double value, const std::string& labels) {
  text_ += name_ + labels + " " + number_text(value) + "\n";
}

void ExpositionWriter::histogram(const std::string& name, const char* help,
                                 const BucketCounts& values) {
  family(name, "histogram", help);
  name_ = name + "_bucket";
  std::int64_t count = 0;
  for (std::size_t i = 0; i < values.counts_.size(); ++i) {
    count += values.counts_[i];
    const std::string bound =
        i < values.bounds_.size() ? format("%g", values.bounds_[i]) : std::string("+Inf");
    sample(static_cast<double>(count), labels({{"le", bound}}));
  }
  name_ = name + "_sum";
  sample(values.sum_);
  name_ = name + "_count";
  sample(static_cast<double>(count));
}

}  // namespace megatron
