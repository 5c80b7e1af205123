#include "megatron/checkpoint/collective_steps.h"

#include <exception>
#include <stdexcept>

#include "megatron/base/error.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

constexpr char kDone = '0', kUserError = '1', kFailure = '2';

/// The result of a step on one rank: a status character (kDone, …) followed by text.
struct Outcome {
  std::string message;
  std::exception_ptr error = {};
};

Outcome outcome_of(const std::function<std::string()>& step) {
  try {
    return {kDone + step()};
  } catch (const UserError& error) {
    return {kUserError + std::string(error.what()), std::current_exception()};
  } catch (const std::exception& error) {
    return {kFailure + std::string(error.what()), std::current_exception()};
  }
}

}  // namespace

std::vector<std::string> CollectiveSteps::run(const std::function<std::string()>& step,
                                              RankPrefix prefix) const {
  if (world_.size == 1) return {step()};
  const Outcome mine = outcome_of(step);
  std::vector<std::string> texts = all_gather_strings({world_, device_}, mine.message);
  if (mine.error) std::rethrow_exception(mine.error);
  return checked(std::move(texts), prefix);
}

std::vector<std::string> CollectiveSteps::gather_from_all_ranks(
    const std::function<std::string()>& step) const {
  if (world_.size == 1) return {step()};
  const Outcome mine = outcome_of(step);
  const ObjectGroup world{world_, device_};
  std::vector<std::string> texts = gather_strings(world, mine.message);
  // What all must know: the first failure, with its rank.
  std::vector<std::string> failure;
  for (std::size_t rank = 0; rank < texts.size() && failure.empty(); ++rank) {
    if (texts[rank].at(0) != kDone) failure = {std::to_string(rank), texts[rank]};
  }
  failure = broadcast_strings(world, failure);
  if (mine.error) std::rethrow_exception(mine.error);
  if (failure.empty()) {
    for (std::string& text : texts) text.erase(0, 1);
    return texts;
  }
  texts.assign(std::stoull(failure[0]) + 1, std::string(1, kDone));
  texts.back() = failure[1];
  return checked(std::move(texts), RankPrefix::always);
}

std::vector<std::string> CollectiveSteps::checked(std::vector<std::string> texts,
                                                  RankPrefix prefix) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char mark = texts[rank].at(0);
    texts[rank].erase(0, 1);
    if (mark == kDone) continue;
    const std::string message = "rank " + std::to_string(rank) + ": " + texts[rank];
    if (mark == kUserError) throw UserError(prefix == RankPrefix::always ? message : texts[rank]);
    throw std::runtime_error(message);
  }
  return texts;
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
