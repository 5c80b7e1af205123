// Draws the attention of one layer over the ranks of context parallelism (context_exchange.h): who
// holds which positions, who computes which blocks, who sends what when, and what it costs.
#pragma once

#include <array>
#include <string>

#include "megatron/schedules/context_exchange.h"

namespace megatron {

/// One pass of a layer and its simulation.
struct ContextPass {
  std::string name;  ///< "forward" or "backward"
  ContextSteps steps;
  ContextSimulation run;

  double flops(std::size_t rank) const;
  /// Returns the bytes that a rank sends.
  double sent_bytes(std::size_t rank) const;
  /// Returns how much more than the mean the busiest rank computes: 0.01 means 1 %.
  double imbalance() const;
};

/// Simulates the forward and the backward pass of a layer.
std::array<ContextPass, 2> context_passes(const ContextAttention& attention,
                                          const ContextSpeed& speed);

/// Draws the chunks of a sequence and their ranks, up to `width` columns in a row.
std::string draw_placement(const ContextAttention& attention, int width);

/// Draws in which step of the ring each block of queries and keys is computed; "" if a rank has all
/// keys at once.
std::string draw_blocks(const ContextAttention& attention, int width);

/// Formats the steps of a pass: the work of each rank, and the messages. Then what each rank
/// computes, sends and waits for.
std::string draw_pass(const ContextAttention& attention, const ContextPass& pass, int width);

}  // namespace megatron
