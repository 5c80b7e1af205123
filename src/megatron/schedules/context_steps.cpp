// Makes the steps of context_exchange.h, in the order in which ops/context_parallel_attention.cpp,
// ops/ring_attention.cpp and autograd run them.
#include <algorithm>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/schedules/context_exchange.h"

namespace megatron {
namespace {

constexpr const char* kKeysAndValues = "keys and values";
constexpr const char* kGradients = "gradients of keys and values";

/// Appends the steps of one rank.
class StepMaker {
 public:
  StepMaker(const ContextAttention& attention, std::int64_t rank, bool is_backward)
      : attention_(attention),
        exchange_(attention.exchange),
        is_backward_(is_backward),
        rank_(rank),
        runs_(zigzag_runs(attention.length, exchange_.ranks)),
        ring_runs_(join_neighbours(runs_, exchange_.head_ranks)) {}

  std::vector<ContextStep> make() {
    if (exchange_.gathers) {
      is_backward_ ? gathered_backward() : gathered_forward();
    } else {
      is_backward_ ? backward_by_heads() : forward_by_heads();
    }
    return std::move(steps_);
  }

 private:
  double tensor_bytes(std::int64_t heads, std::int64_t channels) const {
    return attention_.tensor_bytes(heads, channels);
  }
  double key_bytes() const { return tensor_bytes(attention_.groups, attention_.key_channels); }
  double value_bytes() const { return tensor_bytes(attention_.groups, attention_.value_channels); }

  void add_collective(const char* what, double bytes) {
    if (bytes > 0)
      steps_.push_back({.kind = ContextStepKind::collective, .what = what, .bytes = bytes});
  }
  void gathered_forward() {
    const auto others = static_cast<double>(exchange_.ranks - 1);
    add_collective("all_gather keys", others * key_bytes());
    add_collective("all_gather values", others * value_bytes());
    add_attention(0);
  }
  void gathered_backward() {
    const auto others = static_cast<double>(exchange_.ranks - 1);
    add_attention(0);
    add_collective("reduce_scatter values", others * value_bytes());
    add_collective("reduce_scatter keys", others * key_bytes());
  }

  /// What an exchange of `bytes` among a group's ranks sends to the others.
  double to_others(double bytes) const {
    const auto ranks = static_cast<double>(exchange_.head_ranks);
    return bytes * (ranks - 1) / ranks;
  }
  /// Ranks that share a query group each get a copy of it. The groups divide these ranks.
  double copies() const {
    return std::max(
        1.0, static_cast<double>(exchange_.head_ranks) / static_cast<double>(attention_.groups));
  }
  void exchange_queries() {
    add_collective("all_to_all queries",
                   to_others(tensor_bytes(attention_.heads, attention_.key_channels)));
  }
  void exchange_keys() { add_collective("all_to_all keys", to_others(key_bytes() * copies())); }
  void exchange_values() {
    add_collective("all_to_all values", to_others(value_bytes() * copies()));
  }
  void exchange_result() {
    add_collective("all_to_all attention",
                   to_others(tensor_bytes(attention_.heads, attention_.value_channels)));
  }
  void forward_by_heads() {
    exchange_queries();
    exchange_keys();
    exchange_values();
    ring_forward();
    exchange_result();
  }
  void backward_by_heads() {
    exchange_result();
    ring_backward();
    exchange_values();
    exchange_keys();
    exchange_queries();
  }

  std::int64_t ring_ranks() const { return exchange_.ring_ranks(); }
  std::int64_t place() const { return rank_ / exchange_.head_ranks; }
  std::int64_t neighbour(std::int64_t distance) const {
    const std::int64_t there = (place() + distance + ring_ranks()) % ring_ranks();
    return there * exchange_.head_ranks + rank_ % exchange_.head_ranks;
  }
  void add_message(ContextStepKind kind, const char* what, std::int64_t ring_step) {
    const bool is_send = kind == ContextStepKind::send || kind == ContextStepKind::wait_send;
    // A group of ranks has the rows of all of them and a share of the heads, with copies of groups.
    double bytes = attention_.key_value_bytes() * copies();
    if (std::string_view(what) == kGradients)
      bytes *= attention_.sum_bytes / attention_.element_bytes;
    steps_.push_back({.kind = kind,
                      .what = what,
                      .peer = neighbour(is_send ? 1 : -1),
                      .bytes = bytes,
                      .ring_step = ring_step});
  }

  void ring_forward() {
    for (std::int64_t step = 0; step < ring_ranks(); ++step) {
      const bool passes_on = step + 1 < ring_ranks();
      if (passes_on) {
        add_message(ContextStepKind::send, kKeysAndValues, step);
        add_message(ContextStepKind::receive, kKeysAndValues, step);
      }
      add_attention(step);
      if (!passes_on) break;
      add_message(ContextStepKind::wait_receive, kKeysAndValues, step);
      add_message(ContextStepKind::wait_send, kKeysAndValues, step);
    }
  }

  void ring_backward() {
    const std::int64_t last = ring_ranks() - 1;
    for (std::int64_t step = 0; step <= last; ++step) {
      if (step > 0) add_message(ContextStepKind::receive, kGradients, step);
      if (step < last) {
        add_message(ContextStepKind::send, kKeysAndValues, step);
        add_message(ContextStepKind::receive, kKeysAndValues, step);
      }
      add_attention(step);
      if (last == 0) return;
      if (step > 0) {
        add_message(ContextStepKind::wait_receive, kGradients, step);
        add_message(ContextStepKind::wait_send, kGradients, step);
      }
      add_message(ContextStepKind::send, kGradients, step);
      if (step == last) break;
      add_message(ContextStepKind::wait_receive, kKeysAndValues, step);
      add_message(ContextStepKind::wait_send, kKeysAndValues, step);
    }
    add_message(ContextStepKind::receive, kGradients, last);
    add_message(ContextStepKind::wait_receive, kGradients, last);
    add_message(ContextStepKind::wait_send, kGradients, last);
  }

  void add_attention(std::int64_t ring_step) {
    ContextStep step{.kind = ContextStepKind::attention,
                     .ring_step = ring_step,
                     .source = ring_source(place(), ring_step, ring_ranks())};
    double pairs = 0;
    for (const PositionRun& queries : own_runs()) {
      for (const PositionRun& keys : keys_of(step.source)) {
        const bool is_seen = sees(queries, keys, attention_.mask);
        step.blocks.push_back(
            {queries, keys, is_seen ? visible_pairs(queries, keys, attention_.mask) : 0});
        pairs += step.blocks.back().pairs;
      }
    }
    const auto d = static_cast<double>(attention_.key_channels),
               dv = static_cast<double>(attention_.value_channels);
    const double heads = static_cast<double>(attention_.heads * attention_.samples) /
                         static_cast<double>(exchange_.head_ranks);
    step.flops = pairs * heads * (is_backward_ ? 6 * d + 4 * dv : 2 * (d + dv));
    steps_.push_back(std::move(step));
  }
  const std::vector<PositionRun>& own_runs() const {
    return ring_runs_[static_cast<std::size_t>(place())];
  }
  /// The keys of a place of the ring, or all where a rank gathers them.
  std::vector<PositionRun> keys_of(std::int64_t source) const {
    if (exchange_.gathers) return {{0, attention_.length}};
    return ring_runs_[static_cast<std::size_t>(source)];
  }

  const ContextAttention& attention_;
  const ContextExchange& exchange_;
  bool is_backward_;
  std::int64_t rank_;
  RunsOfRanks runs_, ring_runs_;
  std::vector<ContextStep> steps_;
};

ContextSteps make_steps(const ContextAttention& attention, bool is_backward) {
  const ContextExchange& exchange = attention.exchange;
  MEGATRON_CHECK(
      exchange.ranks % exchange.head_ranks == 0 && attention.heads % exchange.head_ranks == 0,
      exchange.ranks, " ranks in groups of ", exchange.head_ranks, " share ", attention.heads,
      " heads");
  ContextSteps steps;
  for (std::int64_t rank = 0; rank < exchange.ranks; ++rank)
    steps.push_back(StepMaker(attention, rank, is_backward).make());
  return steps;
}

}  // namespace

ContextSteps forward_steps(const ContextAttention& attention) {
  return make_steps(attention, false);
}
ContextSteps backward_steps(const ContextAttention& attention) {
  return make_steps(attention, true);
}

}  // namespace megatron
