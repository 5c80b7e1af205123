#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/metrics/report/page.h"
#include "megatron/metrics/report/summary.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

Series line(std::size_t size, const auto& value) {
  Series series;
  for (std::size_t i = 0; i < size; ++i) series.add(static_cast<double>(i), value(i));
  return series;
}

TEST(Downsampled, KeepsPeaksAndMeans) {
  const Series series = line(10000, [](std::size_t i) {
    return i == 5555 ? 100.0 : i == 7777 ? -100.0 : 1.0;
  });
  const DownsampledSeries drawn = downsample(series, 200);
  EXPECT_LE(drawn.points.x.size(), 200u);
  EXPECT_EQ(*std::ranges::max_element(drawn.points.y), 100);
  EXPECT_EQ(*std::ranges::min_element(drawn.points.y), -100);
  EXPECT_TRUE(std::ranges::is_sorted(drawn.points.x));
  ASSERT_EQ(drawn.means.size(), drawn.points.x.size());
  EXPECT_EQ(drawn.means.front(), 1);
  EXPECT_NEAR(*std::ranges::max_element(drawn.means), 1.99, 1e-12) << "99 ones and a hundred";
}

TEST(Downsampled, ShortSeriesStayAsTheyAre) {
  const DownsampledSeries drawn =
      downsample(line(200, [](std::size_t i) { return static_cast<double>(i); }), 200);
  EXPECT_EQ(drawn.points.x.size(), 200u);
  EXPECT_TRUE(drawn.means.empty());
}

TEST(Downsampled, NotANumberIsKept) {
  const DownsampledSeries drawn =
      downsample(line(1000, [](std::size_t i) { return i == 300 ? std::nan("") : 1.0; }), 100);
  EXPECT_TRUE(std::ranges::any_of(drawn.points.y, [](double y) { return std::isnan(y); }));
}

TEST(HistogramOfSteps, CountsEveryFiniteValue) {
  std::vector<double> values{std::nan("")};
  for (int i = 0; i < 1000; ++i) values.push_back(i);
  const auto bins = histogram(values, 10);
  ASSERT_TRUE(bins);
  EXPECT_EQ(std::accumulate(bins->counts.begin(), bins->counts.end(), bins->above), 1000);
  EXPECT_EQ(bins->above, 10) << "one per cent";
  EXPECT_EQ(bins->median, 499);
  EXPECT_EQ(bins->highest, 999);
  EXPECT_FALSE(histogram({std::nan("")}, 10));
  EXPECT_EQ(histogram({5, 5}, 4)->counts[0], 2);
}

RunLog small_run() {
  RunLog log{.name = "a </script><script>alert(1)</script> & \xff"};
  log.steps["lm loss"] = line(3, [](std::size_t i) { return 3.0 - static_cast<double>(i); });
  log.steps["consumed_train_samples"] =
      line(3, [](std::size_t i) { return 4.0 * static_cast<double>(i); });
  log.evaluations["lm loss validation"].add(1, 2.5);
  log.evaluations["lm loss validation"].add(2, 2.75);
  log.starts.emplace_back(
      Json{{"parameters", 124439808},
           {"settings", {{"seq_length", "16"}, {"train_iters", "9"}, {"num_layers", 12}}}});
  log.start_iterations = {0};
  return log;
}

std::string row(const SummaryRows& rows, const std::string& title) {
  for (const auto& [name, text] : rows) {
    if (name == title) return text;
  }
  return "";
}

TEST(Summary, SaysWhatTheLogKnows) {
  const SummaryRows rows = summarise(small_run());
  EXPECT_EQ(row(rows, "Parameters"), "124.4 M");
  EXPECT_EQ(row(rows, "Iterations"), "2 of 9");
  EXPECT_EQ(row(rows, "Tokens"), "128");
  EXPECT_EQ(row(rows, "Best validation"), "2.5000 (perplexity 12.18) at iteration 1");
  EXPECT_EQ(row(rows, "Model"), "") << "num_layers is no text";
  EXPECT_TRUE(summarise(RunLog{}).empty());
}

TEST(Summary, GivesTheLayoutAndTheEpochs) {
  RunLog log;
  log.starts.emplace_back(
      Json{{"world_size", 8},
           {"data_parallel_size", 2},
           {"settings",
            {{"tensor_model_parallel_size", "4"},
             {"pipeline_model_parallel_size", "1"},
             {"context_parallel_size", "1"}}},
           {"data",
            {{{"split", "train"}, {"source", "books"}, {"epochs", 0.75}, {"tokens", 2000000}},
             {{"split", "validation"}, {"source", "books"}, {"epochs", 1}, {"tokens", 5}},
             {{"split", "train"}, {"source", 7}, {"epochs", "many"}},
             "garbled"}}});
  log.start_iterations = {0};
  const SummaryRows rows = summarise(log);
  EXPECT_EQ(row(rows, "Layout"), "tp 4, pp 1, cp 1, dp 2 (8 ranks)");
  EXPECT_EQ(row(rows, "Training data"), "books: 0.75 epochs of 2 M tokens");
}

TEST(Summary, ListsEverySetting) {
  const SummaryRows settings = last_settings(small_run());
  EXPECT_EQ(settings.size(), 3u);
  EXPECT_EQ(row(settings, "seq_length"), "16");
  EXPECT_EQ(row(settings, "num_layers"), "12") << "whatever the type";
  EXPECT_TRUE(last_settings(RunLog{}).empty());
}

TEST(ReportPage, HoldsItsDataSafelyAndNeedsNoNetwork) {
  const std::string page = report_page({small_run()});
  EXPECT_THAT(page, Not(HasSubstr("</script><script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("/*runs*/")));
  EXPECT_THAT(page, Not(testing::ContainsRegex("(src|href) *= *\"?http")));
  const auto begin = page.find("id=\"runs\">") + 10, end = page.find("</script>", begin);
  const Json data = Json::parse(page.substr(begin, end - begin));
  EXPECT_EQ(data[0].at("series").at("lm loss").at("y"), Json({3, 2, 1}));
  EXPECT_EQ(data[0].at("settings").size(), 3u);
}

}  // namespace
}  // namespace megatron
