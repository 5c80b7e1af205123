#include "megatron/pipeline/run_schedule.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"
#include "megatron/pipeline/overlapped_pair.h"

namespace megatron {
namespace {

/// Returns the largest number of forwards of a rank whose backward has not begun.
std::int64_t most_in_flight(const std::vector<ScheduleStep>& steps) {
  std::int64_t now = 0, most = 0;
  for (const ScheduleStep& step : steps) {
    if (step.kind == StepKind::forward) most = std::max(most, ++now);
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_input) --now;
  }
  return most;
}

/// A tensor that is being received from another rank.
struct PendingReceive {
  at::Tensor tensor;
  PendingWork work;
};

/// The state of one microbatch in one chunk, between its first step and its last.
struct MicrobatchState {
  std::vector<PendingReceive> pending_in, pending_grad;
  Activations in;                               ///< Leaf tensors; their gradients are sent back.
  Activations out, in_grad;                     ///< To be sent.
  torch::autograd::edge_list roots;             ///< Edges that backward starts from.
  torch::autograd::variable_list root_grads;    ///< Gradients of the roots; empty until received.
  std::vector<std::function<void()>> deferred;  ///< Deferred weight-gradient computations.
};

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const PipelineParts& parts, const PipelinePass& pass)
      : schedule_(schedule),
        parts_(parts),
        pass_(pass),
        states_(static_cast<std::size_t>(schedule.num_chunks * schedule.num_microbatches)),
        in_flight_(most_in_flight(schedule.ranks.at(static_cast<std::size_t>(parts.pp.rank)))) {
    MEGATRON_CHECK(parts.pp.size == schedule.num_ranks, "the schedule has ", schedule.num_ranks,
                   " ranks, the axis ", parts.pp.size);
    MEGATRON_CHECK(parts.model.num_chunks() == schedule.num_chunks, "the schedule has ",
                   schedule.num_chunks, " chunks, the model ", parts.model.num_chunks());
    MEGATRON_CHECK(static_cast<std::int64_t>(pass.batch.size()) == schedule.num_microbatches,
                   "the schedule has ", schedule.num_microbatches, " microbatches, the batch ",
                   pass.batch.size());
  }

  void run() {
    const std::vector<ScheduleStep>& steps =
        schedule_.ranks[static_cast<std::size_t>(parts_.pp.rank)];
    std::function<bool()> before_backward = pass_.before_backward;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (before_backward && !is_forward(steps[i].kind) &&
          !std::exchange(before_backward, nullptr)())
        break;
      if (is_message(steps[i].kind)) {
        exchange(steps[i]);
        if (pass_.listener != nullptr) pass_.listener->posted(steps[i]);
      } else if (steps[i].joins_next && parts_.pair != nullptr) {
        compute_overlapped(steps[i], steps[i + 1]);
        ++i;
      } else {
        wait_for_message(steps[i]);
        begin(steps[i]);
        compute(steps[i]);
        end(steps[i]);
      }
    }
    for (const PendingWork& work : sent_) work->wait();
  }

 private:
  void begin(const ScheduleStep& step) {
    if (pass_.listener != nullptr) pass_.listener->begin(step);
  }
  void end(const ScheduleStep& step) {
    if (pass_.listener != nullptr) pass_.listener->end(step);
  }

  /// Waits for the messages of both steps before they start. The collectives that overlap are then
  /// the same on all ranks that share a layer.
  void compute_overlapped(const ScheduleStep& first, const ScheduleStep& second) {
    wait_for_message(first);
    wait_for_message(second);
    begin(first);
    begin(second);
    parts_.pair->run([&] { compute(first); }, [&] { compute(second); });
    end(second);
    end(first);
  }

  void compute(const ScheduleStep& step) {
    switch (step.kind) {
      case StepKind::forward:
        return forward(step);
      case StepKind::backward:
        backward(step);
        return parts_.weights.end_backward();
      case StepKind::backward_input: {
        const ParamStore::Deferral deferral(parts_.weights, state(step).deferred);
        return backward(step);
      }
      default:
        run_deferred(state(step));
        return parts_.weights.end_backward();
    }
  }

  void exchange(const ScheduleStep& step) {
    MicrobatchState& at = state(step);
    const std::int64_t stage = stage_of(step);
    switch (step.kind) {
      case StepKind::send_forward:
        return send(std::exchange(at.out, {}), stage + 1, "activations");
      case StepKind::recv_forward:
        at.pending_in =
            receive(parts_.model.input_specs(step.chunk, pass_of(step)), stage - 1, "activations");
        return;
      case StepKind::send_backward:
        return send(std::exchange(at.in_grad, {}), stage - 1, "activation gradients");
      default:
        at.pending_grad = receive(parts_.model.output_specs(step.chunk, pass_of(step)), stage + 1,
                                  "activation gradients");
    }
  }

  /// Waits until the step's input from another rank has arrived.
  void wait_for_message(const ScheduleStep& step) {
    MicrobatchState& at = state(step);
    const bool is_forward = step.kind == StepKind::forward;
    auto receives = std::exchange(is_forward ? at.pending_in : at.pending_grad, {});
    if (receives.empty()) return;
    const ScheduleStep message{is_forward ? StepKind::recv_forward : StepKind::recv_backward,
                               step.microbatch, step.chunk};
    if (pass_.listener != nullptr) pass_.listener->begin_wait(message);
    for (PendingReceive& tensor : receives) {
      tensor.work->wait();
      (is_forward ? at.in : at.root_grads).push_back(std::move(tensor.tensor));
    }
    if (pass_.listener != nullptr) pass_.listener->end_wait(message);
  }

  // ---- steps ----

  void forward(const ScheduleStep& step) {
    MicrobatchState& at = state(step);
    if (pass_.training) {
      for (at::Tensor& input : at.in) input = input.detach().set_requires_grad(true);
    }
    Pass pass = pass_of(step);
    pass.recomputes_all_layers = recomputes_all_layers();
    StageOutput output = parts_.model.forward_chunk(step.chunk, pass, at.in);
    if (!pass_.training) at.in.clear();
    if (output.loss) return take_loss(step, *std::move(output.loss));
    if (output.result.defined())
      return pass_.on_result(static_cast<std::size_t>(step.microbatch), output.result);
    for (const at::Tensor& activation : output.activations) {
      if (pass_.training) at.roots.push_back(torch::autograd::impl::gradient_edge(activation));
    }
    deliver_output(step, std::move(output.activations));
  }

  /// Returns whether the next forward of this rank recomputes every layer in backward.
  bool recomputes_all_layers() {
    if (!pass_.num_partially_recomputed || !pass_.training) return false;
    return num_forwards_++ % in_flight_ >= *pass_.num_partially_recomputed;
  }

  void take_loss(const ScheduleStep& step, StepOutput heads) {
    MicrobatchState& at = state(step);
    const StepOutput output = parts_.model.objective().apply(
        std::move(heads), pass_.batch[static_cast<std::size_t>(step.microbatch)]);
    const at::Tensor scale = pass_.on_loss(static_cast<std::size_t>(step.microbatch), output);
    if (!pass_.training) return;
    at.roots = {torch::autograd::impl::gradient_edge(output.root)};
    at.root_grads = {scale.to(output.root.scalar_type())};
  }

  /// Drops this rank's reference to the output, so that its memory is freed once it is sent unless
  /// backward reads it.
  void deliver_output(const ScheduleStep& step, Activations output) {
    if (output.empty()) return;  // this stage holds no part of the model
    for (at::Tensor& activation : output) activation = activation.detach().contiguous();
    if (MicrobatchState* next = local_neighbour(step, stage_of(step) + 1)) {
      next->in = std::move(output);
    } else {
      state(step).out = std::move(output);
    }
  }

  void backward(const ScheduleStep& step) {
    MicrobatchState& at = state(step);
    const auto roots = std::exchange(at.roots, {});
    const auto grads = std::exchange(at.root_grads, {});
    if (roots.empty() && grads.empty() &&
        parts_.model.output_specs(step.chunk, pass_of(step)).empty())
      return;
    MEGATRON_CHECK(!roots.empty() && roots.size() == grads.size(), "backward of microbatch ",
                   step.microbatch, " runs before its forward");
    run_backward(roots, grads);
    Activations gradients;
    for (const at::Tensor& input : std::exchange(at.in, {}))
      gradients.push_back(input.grad().defined() ? input.grad().detach().contiguous()
                                                 : at::zeros_like(input));
    if (gradients.empty()) return;
    if (MicrobatchState* previous = local_neighbour(step, stage_of(step) - 1)) {
      previous->root_grads = {gradients.begin(), gradients.end()};
    } else {
      at.in_grad = std::move(gradients);
    }
  }

  /// Leaves out the outputs that need no gradient, because everything in front of them is frozen.
  static void run_backward(torch::autograd::edge_list roots, torch::autograd::variable_list grads) {
    for (std::size_t i = roots.size(); i-- > 0;) {
      if (roots[i].is_valid()) continue;
      roots.erase(roots.begin() + static_cast<std::ptrdiff_t>(i));
      grads.erase(grads.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (roots.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(
        roots, grads, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
  }

  static void run_deferred(MicrobatchState& at) {
    const c10::NoGradGuard no_gradients;
    for (const auto& write : std::exchange(at.deferred, {})) write();
  }

  // ---- messages ----

  /// A send may keep its tensor until it is waited for or destroyed (NCCL), so that finished ones
  /// are dropped here. Waiting for the others would let the GPU's computation wait for them.
  void send(const Activations& tensors, std::int64_t to_stage, const char* what) {
    std::erase_if(sent_, [](const PendingWork& work) {
      if (!work->is_done()) return false;
      work->wait();
      return true;
    });
    for (const at::Tensor& tensor : tensors)
      sent_.push_back(parts_.pp.comm->start_send(tensor, schedule_.rank_of(to_stage), what));
  }

  std::vector<PendingReceive> receive(const std::vector<ActivationSpec>& specs,
                                      std::int64_t from_stage, const char* what) {
    std::vector<PendingReceive> receives;
    for (const ActivationSpec& spec : specs) {
      const at::Tensor tensor = at::empty(
          spec.shape, at::TensorOptions().dtype(spec.dtype).device(parts_.weights.device()));
      receives.push_back(
          {tensor, parts_.pp.comm->start_recv(tensor, schedule_.rank_of(from_stage), what)});
    }
    return receives;
  }

  // ---- stages ----

  std::int64_t stage_of(const ScheduleStep& step) const {
    return schedule_.stage_of(parts_.pp.rank, step.chunk);
  }
  Pass pass_of(const ScheduleStep& step) const {
    const auto index = static_cast<std::size_t>(step.microbatch);
    return {.microbatch = pass_.batch[index],
            .wants = pass_.wants,
            .training = pass_.training,
            .caches = pass_.caches.empty() ? nullptr : &pass_.caches[index],
            .num_logits = pass_.num_logits,
            .last_hidden = pass_.last_hidden,
            .routed_experts = pass_.routed_experts};
  }
  MicrobatchState& state(std::int64_t chunk, std::int64_t microbatch) {
    return states_[static_cast<std::size_t>(chunk * schedule_.num_microbatches + microbatch)];
  }
  MicrobatchState& state(const ScheduleStep& step) { return state(step.chunk, step.microbatch); }
  /// Returns the same microbatch in the adjacent stage `stage` if this rank holds it, else null.
  MicrobatchState* local_neighbour(const ScheduleStep& step, std::int64_t stage) {
    if (schedule_.rank_of(stage) != parts_.pp.rank) return nullptr;
    return &state(schedule_.chunk_of(stage), step.microbatch);
  }

  const Schedule& schedule_;
  const PipelineParts& parts_;
  const PipelinePass& pass_;
  std::vector<MicrobatchState> states_;
  std::vector<PendingWork> sent_;
  std::int64_t in_flight_, num_forwards_ = 0;
};

}  // namespace

void run_schedule(const Schedule& schedule, const PipelineParts& parts, const PipelinePass& pass) {
  Interpreter(schedule, parts, pass).run();
}

}  // namespace megatron
