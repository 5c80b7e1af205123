#include "megatron/load_test/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two answers of 2 s, in which a token came after 0.5 s and another one after 1.5 s more, and a
/// refusal.
Measurements two_answers() {
  RequestRecord record{.start_s = 1, .first_s = 1.5, .end_s = 3, .gaps_s = {1.5}};
  record.prompt_tokens = 10;
  record.output_tokens = 2;
  RequestRecord later = record, refused{.start_s = 1, .end_s = 1.1};
  later.start_s += 2, later.first_s += 2.1, later.end_s += 2.4;
  later.gaps_s = {1.8};
  refused.error = "HTTP 503: loading";
  return measure_records({"poisson 1/s", {1, 1.0}, 9}, std::vector{record, later, refused});
}

TEST(Measurements, AreOfCompletedRequests) {
  const Measurements m = two_answers();
  EXPECT_EQ(m.num_completed, 2u);
  EXPECT_DOUBLE_EQ(m.duration_s, 4.4);
  EXPECT_EQ(m.input_tokens, 20);
  EXPECT_EQ(m.output_tokens, 4);
  EXPECT_DOUBLE_EQ(m.per_second(2), 2 / 4.4);
  EXPECT_NEAR(quantile(m.first_token, 0.5), (0.5 + 0.6) / 2, 1e-12);
  EXPECT_NEAR(quantile(m.end_to_end, 1), 2.4, 1e-12);
}

TEST(Report, IsATable) {
  const std::string text = measurements_text(two_answers());
  EXPECT_THAT(text, HasSubstr("poisson 1/s: 2 requests completed and 1 failed in 4.40 s\n"));
  EXPECT_THAT(text, HasSubstr("  1 failed: HTTP 503: loading\n"));
  EXPECT_THAT(text, HasSubstr("  output_tokens_per_s         0.91\n"));
  EXPECT_THAT(text, HasSubstr("  milliseconds                mean    median       p90"));
  EXPECT_THAT(text, HasSubstr("  time to first token       550.00    550.00    590.00    595.00"));
  const Measurements loads[] = {two_answers(), two_answers()};
  EXPECT_THAT(comparison_text(loads), HasSubstr("poisson 1/s                0.45        0.9"));
}

TEST(Report, IsJson) {
  const Json json = parse_json(measurements_json(two_answers()).dump(), "json");
  EXPECT_EQ(json["completed"], 2);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["rate"], 1);
  EXPECT_EQ(json["errors"]["HTTP 503: loading"], 1);
  EXPECT_NEAR(json["ttft_ms"]["mean"].get<double>(), 550, 1e-9);
  EXPECT_NEAR(json["itl_ms"]["p99"].get<double>(), 1500 + 0.99 * 300, 1e-9);
  EXPECT_NEAR(json["e2e_ms"]["median"].get<double>(), 2200, 1e-9);
  const Json closed = parse_json(measurements_json({.load = {"throughput"}}).dump(), "json");
  EXPECT_TRUE(closed["rate"].is_null());
  EXPECT_FALSE(closed.contains("ttft_ms"));
}

TEST(Report, IsADrawing) {
  Measurements slow = two_answers(), fast = two_answers();
  fast.duration_s = 1;
  const Measurements loads[] = {fast, slow};
  const std::string svg = latency_svg(loads, "a <model> & more");
  EXPECT_THAT(svg, HasSubstr("a &lt;model&gt; &amp; more"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr("requests per second"));
  EXPECT_THAT(svg, HasSubstr(">p99</text>"));
  EXPECT_THAT(latency_svg({loads, 1}, ""), HasSubstr("milliseconds"));
  // Nothing was measured: the axes remain.
  const std::string empty = latency_svg({std::vector<Measurements>(2)}, "");
  for (const std::string& text : {svg, empty}) {
    EXPECT_THAT(text, Not(HasSubstr("nan")));
    EXPECT_THAT(text, Not(HasSubstr("inf")));
    EXPECT_TRUE(text.ends_with("</svg>\n"));
  }
}

}  // namespace
}  // namespace megatron
