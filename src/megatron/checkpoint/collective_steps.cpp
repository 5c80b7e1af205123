#include "megatron/checkpoint/collective_steps.h"

#include <exception>
#include <filesystem>
#include <stdexcept>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

constexpr char kDone = '0', kUserError = '1', kFailure = '2';

/// The result of a step on one rank: a status character (kDone, …) followed by text.
struct Outcome {
  std::string message;
  std::exception_ptr error = {};
};

/// Runs a step. A folder that cannot be read is a UserError, as a file is.
std::string run_here(const std::function<std::string()>& step) try {
  return step();
} catch (const std::filesystem::filesystem_error& error) {
  throw_file_error("read folder", error.path1(), error.code().value());
}

Outcome outcome_of(const std::function<std::string()>& step) {
  try {
    return {kDone + run_here(step)};
  } catch (const UserError& error) {
    return {kUserError + std::string(error.what()), std::current_exception()};
  } catch (const std::exception& error) {
    return {kFailure + std::string(error.what()), std::current_exception()};
  }
}

}  // namespace

std::vector<std::string> CollectiveSteps::run(const std::function<std::string()>& step,
                                              RankPrefix prefix) const {
  if (world_.size == 1) return {run_here(step)};
  const Outcome mine = outcome_of(step);
  std::vector<std::string> texts = all_gather_strings({world_, device_}, mine.message);
  if (mine.error) std::rethrow_exception(mine.error);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    texts[rank] = result_of(std::to_string(rank), texts[rank], prefix);
  return texts;
}

std::vector<std::string> CollectiveSteps::gather_from_all_ranks(
    const std::function<std::string()>& step) const {
  if (world_.size == 1) return {run_here(step)};
  const Outcome mine = outcome_of(step);
  const ObjectGroup world{world_, device_};
  std::vector<std::string> texts = gather_strings(world, mine.message);
  std::vector<std::string> failure;  // the first one: its rank and its text
  for (std::size_t rank = 0; rank < texts.size() && failure.empty(); ++rank) {
    if (texts[rank].at(0) != kDone) failure = {std::to_string(rank), texts[rank]};
  }
  failure = broadcast_strings(world, failure);
  if (mine.error) std::rethrow_exception(mine.error);
  if (!failure.empty()) result_of(failure[0], failure[1], RankPrefix::always);
  for (std::string& text : texts) text.erase(0, 1);
  return texts;
}

std::string CollectiveSteps::result_of(const std::string& rank, const std::string& message,
                                       RankPrefix prefix) {
  const char mark = message.at(0);
  std::string text = message.substr(1);
  if (mark == kDone) return text;
  const std::string with_rank = "rank " + rank + ": " + text;
  if (mark == kUserError) throw UserError(prefix == RankPrefix::always ? with_rank : text);
  throw std::runtime_error(with_rank);
}

std::vector<std::string> CollectiveSteps::run_on_all_ranks(
    const std::function<std::string()>& step) const {
  return run(step, RankPrefix::always);
}

std::string CollectiveSteps::run_on_rank_0(const std::function<std::string()>& step) const {
  return run([&] { return world_.rank == 0 ? step() : std::string(); },
             RankPrefix::internal_errors_only)
      .front();
}

}  // namespace megatron
