// The front end of `megatron generate` and `megatron score`. It prints the help and reports
// mistakes in the flags before the engine is loaded.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/cli/rank_frontend.h"
#include "megatron/config/inference_options.h"

namespace megatron {
namespace {

template <class Options>
int run_front(std::string_view command, std::span<const std::string> args,
              Options (*read)(std::span<const std::string>, std::int64_t)) {
  const LaunchEnvironment environment = find_launch_environment();
  Options options;
  if (const auto code = parse_on_rank(environment, command, args,
                                      [&] { options = read(args, environment.world_size); }))
    return *code;
  if (environment.rank == 0) std::cerr << notes_text(options.parsed.notes);
  return run_in_engine(command, args);
}

}  // namespace

const FieldSet& generate_fields() { return generate_table().set(); }
void check_generate(std::span<const std::string> args, std::int64_t world_size) {
  read_generate_options(args, world_size);
}
int run_generate_frontend(std::span<const std::string> args) {
  return run_front("generate", args, read_generate_options);
}

const FieldSet& score_fields() { return score_table().set(); }
void check_score(std::span<const std::string> args, std::int64_t world_size) {
  read_score_options(args, world_size);
}
int run_score_frontend(std::span<const std::string> args) {
  return run_front("score", args, read_score_options);
}

}  // namespace megatron
