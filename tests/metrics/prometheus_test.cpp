#include "megatron/metrics/prometheus.h"

#include <gmock/gmock.h>

#include <cmath>

#include "megatron/base/error.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PrometheusText, HasHelpTypeAndValue) {
  PrometheusCollector state;
  state.add(StepMetrics{.iteration = 3,
                        .losses = {{"lm loss", 2.5}},
                        .is_skipped = true,
                        .throughput = {.mfu = 0.5, .mfu_causal = 0.25}});
  const std::string text = state.text();
  EXPECT_THAT(text, HasSubstr("# HELP megatron_training_loss Loss of the last step.\n# TYPE "
                              "megatron_training_loss gauge\n"
                              "megatron_training_loss{loss=\"lm loss\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("megatron_training_mfu_ratio{attention=\"causal\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE megatron_training_skipped_updates_total "
                              "counter\nmegatron_training_skipped_updates_total 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("params_norm")));
}

TEST(PrometheusText, SpellsWhatIsNoNumberAndEscapesLabels) {
  PrometheusCollector state;
  state.add(StepMetrics{.losses = {{"a\"b\\c\nd", std::nan("")}}, .grad_norm = INFINITY});
  EXPECT_THAT(state.text(), HasSubstr("megatron_training_loss{loss=\"a\\\"b\\\\c\\nd\"} NaN\n"));
  EXPECT_THAT(state.text(), HasSubstr("megatron_training_grad_norm +Inf\n"));
}

TEST(PrometheusText, BeforeTheFirstStepThereAreOnlyCounters) {
  EXPECT_THAT(PrometheusCollector().text(), HasSubstr("megatron_training_steps_total 0\n"));
  EXPECT_THAT(PrometheusCollector().text(), Not(HasSubstr("megatron_training_loss")));
}

TEST(PrometheusFile, IsReplacedWhole) {
  const TemporaryFolder folder;
  write_prometheus_file(folder / "a.prom", "one");
  write_prometheus_file(folder / "a.prom", "two");
  EXPECT_EQ(read_file(folder / "a.prom"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
  EXPECT_THROW(write_prometheus_file(folder / "none" / "a.prom", ""), UserError);
}

}  // namespace
}  // namespace megatron
