#include "megatron/config/mesh_sizes.h"

#include <numeric>
#include <utility>
#include <vector>

#include "megatron/config/parallel_config.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

using Degree = std::pair<const char*, std::int64_t>;

const char* const kTensor = "--tensor-model-parallel-size";
const char* const kPipeline = "--pipeline-model-parallel-size";
const char* const kContext = "--context-parallel-size";
const char* const kExpert = "--expert-model-parallel-size";
const char* const kExpertTensor = "--expert-tensor-parallel-size";

std::vector<Degree> dense_degrees(const MeshSizes& sizes) {
  return {{kTensor, sizes.tp}, {kPipeline, sizes.pp}, {kContext, sizes.cp}};
}

std::vector<Degree> expert_degrees(const MeshSizes& sizes) {
  return {{sizes.etp ? kExpertTensor : kTensor, sizes.expert_tp()},
          {kExpert, sizes.ep},
          {kPipeline, sizes.pp}};
}

/// Returns the product, or nullopt if it is larger than any possible world size.
std::optional<std::int64_t> product_of(const std::vector<Degree>& degrees) {
  std::int64_t product = 1;
  for (const auto& [flag, size] : degrees) {
    if (size > kMaxSize / product) return std::nullopt;
    product *= size;
  }
  return product;
}

/// Returns the flags of the degrees above 1, with their values.
std::string text_of(const std::vector<Degree>& degrees) {
  std::string text;
  for (const auto& [flag, size] : degrees) {
    if (size > 1)
      text += (text.empty() ? "" : " x ") + std::string(flag) + " " + std::to_string(size);
  }
  return text;
}

std::string processes(std::int64_t world_size) {
  return world_size == 1 ? "this is one" : "there are " + std::to_string(world_size);
}

std::string worlds_near(std::int64_t product, std::int64_t world_size) {
  const std::int64_t below = world_size / product * product;
  const std::string above = std::to_string(below + product);
  return below == 0 ? above : std::to_string(below) + " or " + above;
}

/// Adds a problem if no mesh of these degrees fills the world. Worlds of a multiple of `unit` fit;
/// `remedy` is what else to do about it.
void add_indivisible(const std::vector<Degree>& degrees, std::int64_t world_size, std::int64_t unit,
                     const std::string& remedy, Problems& problems) {
  const auto product = product_of(degrees);
  if (!product) {
    problems.add({text_of(degrees), "needs more processes than any run can have", "lower them"});
  } else if (world_size % *product != 0) {
    const std::string number = worlds_near(unit, world_size);
    const std::string example =
        "`megatron launch --nproc-per-node " + number.substr(0, number.find(' ')) + " -- ...`";
    problems.add(
        {text_of(degrees),
         "needs a multiple of " + std::to_string(*product) + " processes, " + processes(world_size),
         "start " + number + " (" + example + "), " + remedy + "or change the flags"});
  }
}

/// Returns the hint that experts need not be divided as the other layers are, if that helps.
std::string whole_experts_remedy(const MeshSizes& sizes, std::int64_t world_size) {
  const auto product = product_of({{kExpert, sizes.ep}, {kPipeline, sizes.pp}});
  const bool helps = !sizes.etp && sizes.tp > 1 && product && world_size % *product == 0;
  return helps ? std::string("add ") + kExpertTensor +
                     " 1 to divide only the other layers by --tensor-model-parallel-size, "
               : "";
}

bool has_degree_below_1(const MeshSizes& sizes, Problems& problems) {
  bool found = false;
  for (const auto& degrees : {dense_degrees(sizes), expert_degrees(sizes)}) {
    for (const auto& [flag, size] : degrees) {
      if (size >= 1) continue;
      found = true;
      problems.add({std::string(flag) + ": must be at least 1, got " + std::to_string(size), "",
                    "use 1 or more"});
    }
  }
  return found;
}

const char* const kDataLast = "tp-cp-ep-pp-dp";  ///< the order of --use-tp-pp-dp-mapping

/// Adds a problem if dense layers and experts would have other pipelines. With pp last they never
/// have.
void add_unequal_pipelines(const MeshSizes& sizes, Problems& problems) {
  const std::int64_t dense = sizes.tp * sizes.cp, experts = sizes.expert_tp() * sizes.ep;
  if (sizes.order != kDataLast || sizes.pp == 1 || dense == experts) return;
  if (sizes.ep == 1 && experts == sizes.tp) {
    problems.add({"--use-tp-pp-dp-mapping",
                  "cannot be combined with pipeline stages and --context-parallel-size, as in "
                  "Megatron-LM",
                  "leave it out"});
    return;
  }
  problems.add({"--use-tp-pp-dp-mapping",
                "puts pipeline neighbours tp x cp = " + std::to_string(dense) +
                    " ranks apart in dense layers and etp x ep = " + std::to_string(experts) +
                    " in experts",
                "leave it out, or make the two products equal"});
}

}  // namespace

MeshSizes mesh_sizes(const ParallelConfig& parallel) {
  return {.tp = parallel.tensor_model_parallel_size,
          .cp = parallel.context_parallel_size,
          .ep = parallel.expert_model_parallel_size,
          .etp = parallel.expert_tensor_parallel_size,
          .pp = parallel.pipeline_model_parallel_size,
          .order = parallel.use_tp_pp_dp_mapping ? kDataLast : "tp-cp-ep-dp-pp"};
}

Problems check_mesh_sizes(const MeshSizes& sizes, std::int64_t world_size) {
  Problems problems;
  if (world_size < 1)
    problems.add({"world", "has " + std::to_string(world_size) + " ranks", "start at least one"});
  if (has_degree_below_1(sizes, problems) || !problems.empty()) return problems;
  const bool experts_differ = sizes.ep > 1 || sizes.expert_tp() != sizes.tp;
  const auto dense = product_of(dense_degrees(sizes)), experts = product_of(expert_degrees(sizes));
  const std::int64_t unit =
      dense && experts && experts_differ ? std::lcm(*dense, *experts) : dense.value_or(1);
  add_indivisible(dense_degrees(sizes), world_size, unit, "", problems);
  if (experts_differ)
    add_indivisible(expert_degrees(sizes), world_size, unit,
                    whole_experts_remedy(sizes, world_size), problems);
  if (problems.empty()) add_unequal_pipelines(sizes, problems);
  return problems;
}

std::int64_t data_parallel_size(const MeshSizes& sizes, std::int64_t world_size) {
  return world_size / (sizes.tp * sizes.cp * sizes.pp);
}

std::int64_t expert_data_parallel_size(const MeshSizes& sizes, std::int64_t world_size) {
  return world_size / (sizes.expert_tp() * sizes.ep * sizes.pp);
}

}  // namespace megatron
