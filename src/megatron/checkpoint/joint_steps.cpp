#include "megatron/checkpoint/joint_steps.h"

#include <exception>
#include <stdexcept>

#include "megatron/base/error.h"
#include "megatron/parallel/gather_texts.h"

namespace megatron {
namespace {

constexpr char kDone = '0', kUserError = '1', kFailure = '2';

/// What a rank has to tell: one of the marks, then a text.
struct Outcome {
  std::string told;
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

std::vector<std::string> JointSteps::run(const std::function<std::string()>& step,
                                         Naming naming) const {
  if (world_.size == 1) return {step()};
  const Outcome mine = outcome_of(step);
  std::vector<std::string> texts = gather_texts(world_, mine.told, device_);
  if (mine.error) std::rethrow_exception(mine.error);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char mark = texts[rank].at(0);
    texts[rank].erase(0, 1);
    if (mark == kDone) continue;
    const std::string message = "rank " + std::to_string(rank) + ": " + texts[rank];
    if (mark == kUserError)
      throw UserError(naming == Naming::the_rank ? message : texts[rank]);
    throw std::runtime_error(message);
  }
  return texts;
}

std::vector<std::string> JointSteps::on_all(const std::function<std::string()>& step) const {
  return run(step, Naming::the_rank);
}

std::string JointSteps::on_first(const std::function<std::string()>& step) const {
  return run([&] { return world_.rank == 0 ? step() : std::string(); }, Naming::of_failures_only)
      .front();
}

}  // namespace megatron
