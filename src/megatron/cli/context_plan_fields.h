// The flags of `megatron plan --show-context`. The table of `plan` declares them for the help,
// plan_context.cpp reads them.
#pragma once

#include "megatron/config/field_table.h"

namespace megatron {

struct ContextPlanSpeed {
  double attention_tflops = 400, link_gbytes_per_s = 50, link_latency_us = 10;
};

/// Adds the flags to a table whose options have the members show_context and context_speed.
template <class T>
void add_context_plan_fields(FieldTable<T>& t, ContextPlanSpeed T::*speed) {
  t.group("Context parallelism");
  t.field("show_context", &T::show_context,
          "with the flags of a run: draw which rank of --context-parallel-size holds and computes "
          "what, what it sends when, and which time of that is exposed");
  const auto add = [&](const char* name, double ContextPlanSpeed::*member, const char* help) {
    t.field(name, speed, member, help);
  };
  add("attention_tflops", &ContextPlanSpeed::attention_tflops, "");
}

}  // namespace megatron
