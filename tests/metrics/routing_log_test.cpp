// What the report says about experts, from metrics whose values were computed by hand.

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "megatron/metrics/report/page.h"
#include "megatron/metrics/report/run_log.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

RunLog read(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "metrics.jsonl", std::ios::binary) << text;
  return read_run_log(folder.path());
}

/// Returns the data of the first run on the page.
Json page_data(const RunLog& log) {
  const std::string page = report_page({log});
  const auto begin = page.find("id=\"runs\">") + 10, end = page.find("</script>", begin);
  return Json::parse(page.substr(begin, end - begin))[0];
}

std::vector<double> values(const RunLog& log, const std::string& key) {
  const auto found = log.steps.find(key);
  return found == log.steps.end() ? std::vector<double>{} : found->second.y;
}

/// Two layers of four experts. The means of the loads of iteration 2 are 4 and 16.
constexpr const char* kTwoSteps =
    R"({"iteration":1,"routing":{"layers":[1,3],"imbalance":[1.0,3.0],"entropy":[1.5,0.5],)"
    R"("dropped":[0,6],"load":[[4,4,4,4],[1,1,1,61]]},"load_balancing_loss":1.25}
)"
    R"({"iteration":2,"routing":{"layers":[1,3],"imbalance":[2.0,2.5],"entropy":[1.25,0.25],)"
    R"("dropped":[2,4],"load":[[8,2,0,6],[4,40,16,4]]},"load_balancing_loss":1.125}
)";

TEST(RoutingLog, CurvesAreStatisticsOverLayers) {
  const RunLog log = read(kTwoSteps);
  EXPECT_EQ(values(log, "routing imbalance mean"), (std::vector<double>{2, 2.25}));
  EXPECT_EQ(values(log, "routing imbalance max"), (std::vector<double>{3, 2.5}));
  EXPECT_EQ(values(log, "routing entropy mean"), (std::vector<double>{1, 0.75}));
  EXPECT_EQ(values(log, "routing entropy min"), (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(values(log, "routing entropy max"), (std::vector<double>{1.5, 1.25}));
  EXPECT_EQ(values(log, "routing dropped mean"), (std::vector<double>{3, 3}));
  EXPECT_EQ(values(log, "routing dropped max"), (std::vector<double>{6, 4}));
  EXPECT_EQ(values(log, "load_balancing_loss"), (std::vector<double>{1.25, 1.125}));
  EXPECT_EQ(log.steps.at("routing imbalance max").x, (std::vector<double>{1, 2}));
}

TEST(RoutingLog, ThePageHasTheLoadsOfTheLastIterationBesideTheMeanOfTheirLayer) {
  const Json data = page_data(read(kTwoSteps)), map = data.at("expert_loads");
  EXPECT_EQ(map.at("iteration"), 2);
  EXPECT_EQ(map.at("layers"), Json({1, 3}));
  EXPECT_EQ(map.at("loads"), Json({{8, 2, 0, 6}, {4, 40, 16, 4}}));
  EXPECT_EQ(map.at("relative"), Json({{2, 0.5, 0, 1.5}, {0.25, 2.5, 1, 0.25}}));
  EXPECT_EQ(data.at("series").at("routing entropy min").at("y"), Json({0.5, 0.25}));
}

TEST(RoutingLog, TheLatestIterationWithLoadsIsDrawnWhereverItStands) {
  // The first run was cut after iteration 3; iteration 2 was repeated by a run without loads.
  const RunLog log = read(R"({"iteration":3,"routing":{"load":[[1,3]]}})"
                          "\n"
                          R"({"iteration":2,"routing":{"load":[[2,2]]}})"
                          "\n"
                          R"({"iteration":3,"routing":{"load":[[6,2]]}})"
                          "\n"
                          R"({"iteration":4,"routing":{"imbalance":[1.5]}})"
                          "\n");
  EXPECT_EQ(log.expert_loads.iteration, 3);
  EXPECT_EQ(log.expert_loads.loads, (std::vector<std::vector<double>>{{6, 2}}));
}

TEST(RoutingLog, WithoutLoadsThePageHasNoHeatMap) {
  const Json data = page_data(read(R"({"iteration":1,"routing":{"imbalance":[1.5]}})"));
  EXPECT_EQ(data.at("has_routing"), true);
  EXPECT_FALSE(data.contains("expert_loads"));
  EXPECT_EQ(page_data(read(R"({"iteration":1,"lm loss":2})")).at("has_routing"), false);
}

TEST(RoutingLog, WhatIsNoNumberStaysAGapAndTheRestIsRead) {
  const RunLog log = read(R"({"iteration":7,"lm loss":2,"routing":{"layers":["one",-1,1e300],)"
                          R"("imbalance":[null,"x",4],"entropy":"none","dropped":[],)"
                          R"("load":[[2,null,"x",4,-3],"row",[0,0],{"a":1}]}})");
  EXPECT_EQ(log.unreadable_lines, 0);
  EXPECT_EQ(values(log, "lm loss"), std::vector<double>{2});
  EXPECT_EQ(values(log, "routing imbalance mean"), std::vector<double>{4});
  EXPECT_TRUE(values(log, "routing entropy mean").empty());
  EXPECT_TRUE(values(log, "routing dropped mean").empty());
  const Json map = page_data(log).at("expert_loads");
  EXPECT_EQ(map.at("layers"), Json({0, 1, 2, 3})) << "their positions";
  EXPECT_EQ(map.at("loads"), Json::parse("[[2,null,null,4,null],[],[0,0],[]]"));
  // The mean of 2 and 4 is 3.
  EXPECT_NEAR(map.at("relative")[0][0].get<double>(), 2.0 / 3, 1e-6);
  EXPECT_NEAR(map.at("relative")[0][3].get<double>(), 4.0 / 3, 1e-6);
  EXPECT_EQ(map.at("relative")[2], Json({0, 0})) << "a layer without any choice";
}

TEST(RoutingLog, OtherShapesAreIgnored) {
  for (const char* routing :
       {"7", "[1,2]", "null", "\"text\"", "{}", R"({"load":[]})", R"({"load":[[],[]]})",
        R"({"load":[[null]]})", R"({"load":7})", R"({"layers":[1]})"}) {
    const RunLog log =
        read(std::string(R"({"iteration":1,"lm loss":2,"routing":)") + routing + "}");
    EXPECT_EQ(log.unreadable_lines, 0) << routing;
    EXPECT_TRUE(log.expert_loads.loads.empty()) << routing;
    EXPECT_EQ(values(log, "lm loss"), std::vector<double>{2}) << routing;
    EXPECT_FALSE(page_data(log).contains("expert_loads")) << routing;
  }
}

/// Damages valid lines at random; whatever of them is read must make a page.
TEST(RoutingLogFuzz, DamagedLinesMakeAPage) {
  std::mt19937 random(11);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const std::string good = kTwoSteps;
  constexpr std::string_view kBytes = "[]{},:\"0123456789.-eNn";
  int maps = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string line = good.substr(0, good.find('\n'));
    for (std::size_t changes = 1 + below(3); changes > 0; --changes)
      line[below(line.size())] = kBytes[below(kBytes.size())];
    RunLog log;
    if (!read_metrics_line(line, log) || log.expert_loads.loads.empty()) continue;
    const std::vector<std::vector<double>> relative = relative_loads(log.expert_loads);
    ASSERT_EQ(relative.size(), log.expert_loads.layers.size()) << line;
    for (const std::vector<double>& row : relative) {
      for (const double value : row) EXPECT_FALSE(value < 0) << line;
    }
    ++maps;
  }
  EXPECT_GT(maps, 500);
}

}  // namespace
}  // namespace megatron
