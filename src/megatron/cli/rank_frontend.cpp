#include "megatron/cli/rank_frontend.h"

#include "megatron/base/error.h"
#include "megatron/cli/command.h"
#include "megatron/config/command_line.h"

namespace megatron {

std::optional<int> parse_on_rank(const LaunchEnvironment& environment, std::string_view command,
                                 std::span<const std::string> args,
                                 const std::function<void()>& read) {
  try {
    read();
    return std::nullopt;
  } catch (const HelpRequested&) {
    if (environment.rank == 0) throw;
    return 0;
  } catch (const UserError&) {
    if (environment.world_size == 1) throw;
    return run_in_engine(command, args);
  }
}

}  // namespace megatron
