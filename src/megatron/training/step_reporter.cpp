#include "megatron/training/step_reporter.h"

#include <array>
#include <nlohmann/json.hpp>
#include <ostream>

#include "megatron/base/format.h"
#include "megatron/training/log_lines.h"
#include "megatron/training/process_memory.h"

namespace megatron {
namespace {

constexpr std::array<std::string_view, 5> kStepTimers{"forward-backward", "forward-compute", "backward-compute", "batch-generator", "optimizer"};

MetricsWriter make_metrics_writer(const Settings& settings, std::int64_t iteration) {
  const std::string& folder = settings.logger.tensorboard_dir.empty() ? settings.checkpoint.save : settings.logger.tensorboard_dir;
  return folder.empty() ? MetricsWriter() : MetricsWriter(folder, iteration);
}

}  // namespace

StepReporter::StepReporter(Trainer& trainer, std::ostream& out, Progress& bar)
    : trainer_(trainer),
      out_(out),
      bar_(bar),
      metrics_(make_metrics_writer(trainer.settings, trainer.progress.iteration)),
      first_iteration_(trainer.progress.iteration + 1) {
  trainer_.timers.start("interval-time");
}

void StepReporter::report(const TrainStepResult& step, double elapsed_s) {
  interval_.add(step);
  const auto norm = trainer_.settings.logger.log_params_norm ? std::optional(trainer_.optimizer->main_parameters().norm()) : std::nullopt;
  write_metrics(step, elapsed_s, norm);
  const std::int64_t iteration = trainer_.progress.iteration;
  const bool is_first = iteration == first_iteration_, closes_interval = iteration % trainer_.settings.logger.log_interval == 0;
  if (is_first || closes_interval) {
    bar_.clear();
    print_iteration(step, norm);
  }
  if (is_first) out_ << memory_line(iteration) << std::endl;
  if (closes_interval) {
    interval_.reset();
    trainer_.timers.reset("interval-time");
    print_timers();
  }
  bar_.update(static_cast<std::uint64_t>(iteration), format("loss %.4f", step.loss()));
}

void StepReporter::print_iteration(const TrainStepResult& step, std::optional<double> norm) {
  const Settings& settings = trainer_.settings;
  IterationReport report{.iteration = trainer_.progress.iteration,
                         .train_iters = settings.training.train_iters,
                         .consumed_samples = trainer_.progress.consumed_train_samples,
                         .skipped_samples = trainer_.progress.skipped_train_samples,
                         .throughput = std::nullopt,
                         .learning_rate = trainer_.scheduler.lr(),
                         .decoupled_learning_rate = trainer_.scheduler.decoupled_lr(),
                         .global_batch_size = trainer_.batch.running_batch_size,
                         .losses = {},
                         .loss_scale = step.update.loss_scale,
                         .grad_norm = step.update.grad_norm,
                         .num_zeros = std::nullopt,
                         .params_norm = norm};
  interval_.fill(report, trainer_.timers.seconds("interval-time"));
  if (settings.logger.log_num_zeros_in_grad) report.num_zeros = step.update.num_zeros;
  if (settings.logger.log_throughput) report.throughput = trainer_.flops_per_iteration / (report.elapsed_ms / 1000 * 1e12);
  out_ << iteration_line(report, current_time()) << std::endl;
}

void StepReporter::write_metrics(const TrainStepResult& step, double elapsed_s, std::optional<double> norm) {
  OrderedJson line{{"iteration", trainer_.progress.iteration},
                   {"consumed_train_samples", trainer_.progress.consumed_train_samples},
                   {"lm loss", step.loss()},
                   {"learning_rate", trainer_.scheduler.lr()},
                   {"grad_norm", step.update.grad_norm},
                   {"loss_scale", step.update.loss_scale},
                   {"skipped", !step.update.applied},
                   {"elapsed_ms", elapsed_s * 1000},
                   {"tokens_per_second", step.tokens / elapsed_s}};
  if (const auto lr = trainer_.scheduler.decoupled_lr()) line["decoupled_learning_rate"] = *lr;
  if (norm) line["params_norm"] = *norm;
  if (trainer_.settings.logger.log_num_zeros_in_grad) line["num_zeros"] = step.update.num_zeros;
  metrics_.write(line);
}

void StepReporter::report_evaluation(std::string_view split, const std::string& where, double loss, std::string_view suffix) {
  out_ << validation_block(where, {{"lm loss", loss}}, suffix) << std::endl;
  metrics_.write({{"iteration", trainer_.progress.iteration}, {"split", split}, {"lm loss", loss}, {"lm loss ppl", perplexity(loss)}});
}

void StepReporter::print_timers() {
  const std::string times = trainer_.timers.report(kStepTimers, static_cast<double>(trainer_.settings.logger.log_interval));
  if (!times.empty()) out_ << times << std::endl;
}

}  // namespace megatron
