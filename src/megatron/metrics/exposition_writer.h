// Writes metrics in Prometheus' text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

inline constexpr std::string_view kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

/// Returns {name="value",…}; backslash, quote and line feed in values are escaped.
std::string labels(std::initializer_list<std::pair<std::string_view, std::string>> pairs);

/// Counts values by ranges. Not thread-safe.
class BucketCounts {
 public:
  /// `bounds` are the upper ends of the ranges, ascending; another range has what is above.
  explicit BucketCounts(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value, std::int64_t times = 1);

 private:
  friend class ExpositionWriter;
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;
  double sum_ = 0;
};

class ExpositionWriter {
 public:
  /// Begins a metric. Its samples follow.
  void family(const std::string& name, const char* type, const char* help);
  void sample(double value, const std::string& labels = "");
  void gauge(const std::string& name, const char* help, double value) {
    family(name, "gauge", help);
    sample(value);
  }
  /// Leaves out a metric without a value.
  void gauge(const std::string& name, const char* help, const auto& optional) requires requires {
    optional.has_value();
  }
  {
    if (optional) gauge(name, help, static_cast<double>(*optional));
  }
  void counter(const std::string& name, const char* help, double value) {
    family(name, "counter", help);
    sample(value);
  }
  void histogram(const std::string& name, const char* help, const BucketCounts& values);
  std::string text() && { return std::move(text_); }

 private:
  std::string name_, text_;
};

}  // namespace megatron
