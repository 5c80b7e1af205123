#include "megatron/inference/sampling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/sampling/sampling.h"

namespace megatron {

BeamSearch::BeamSearch(const SamplingParams& params, std::int64_t max_new_tokens)
    : num_beams_(static_cast<std::size_t>(params.num_beams)),
      length_penalty_(params.length_penalty),
      stop_token_ids_(params.stop_token_ids),
      max_new_tokens_(max_new_tokens) {}

double BeamSearch::score(double logprob, std::int64_t length) const {
  return logprob / std::pow(static_cast<double>(length), length_penalty_);
}

/// Returns the best continuations of all beams, best first: enough that as many as there are beams
/// go on if each stop token is among those of every beam.
std::vector<BeamSearch::Candidate> BeamSearch::best_candidates(
    std::span<const std::span<const float>> logprobs) const {
  const std::size_t num_kept = std::max<std::size_t>(2, 1 + stop_token_ids_.size()) * num_beams_;
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    for (const std::int64_t id : best_tokens(logprobs[i], static_cast<std::int64_t>(num_kept))) {
      const double logprob = running_[i].logprob + logprobs[i][static_cast<std::size_t>(id)];
      if (std::isfinite(logprob)) all.push_back({i, id, logprob});
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Candidate::logprob);
  all.resize(std::min(all.size(), num_kept));
  return all;
}

void BeamSearch::finish(FinishedBeam beam) {
  const auto place =
      std::ranges::upper_bound(finished_, beam.score, std::ranges::greater(), &FinishedBeam::score);
  finished_.insert(place, std::move(beam));
  if (finished_.size() > num_beams_) finished_.pop_back();
}

void BeamSearch::step(std::span<const std::span<const float>> logprobs) {
  MEGATRON_CHECK(logprobs.size() == running_.size(), logprobs.size(), " rows for ", running_.size(),
                 " beams");
  const bool is_last = length_ + 1 >= max_new_tokens_;
  std::vector<Beam> next;
  std::size_t rank = 0;
  for (const Candidate& candidate : best_candidates(logprobs)) {
    const bool has_stopped = std::ranges::count(stop_token_ids_, candidate.id) > 0;
    if (has_stopped || is_last) {
      // What is not among the best when it ends is not a result.
      if (rank < num_beams_) {
        FinishedBeam beam{running_[candidate.parent].ids, score(candidate.logprob, length_ + 1),
                          has_stopped};
        if (!has_stopped) beam.ids.push_back(candidate.id);
        finish(std::move(beam));
      }
    } else if (next.size() < num_beams_) {
      next.push_back({running_[candidate.parent].ids, candidate.logprob, candidate.parent});
      next.back().ids.push_back(candidate.id);
    }
    ++rank;
  }
  ++length_;
  running_ = std::move(next);
  // The heuristic of early_stopping=False: the best beam as if it ended now.
  if (!running_.empty() && finished_.size() == num_beams_ &&
      score(running_.front().logprob, length_) <= finished_.back().score)
    running_.clear();
}

void BeamSearch::stop() {
  for (const Beam& beam : std::exchange(running_, {}))
    if (length_ > 0) finish({beam.ids, score(beam.logprob, length_), false});
}

}  // namespace megatron
