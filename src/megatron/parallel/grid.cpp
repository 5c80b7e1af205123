#include "megatron/parallel/grid.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxRanks = std::int64_t{1} << 40;

std::string joined(const std::vector<std::string>& names) { return joined_text(names, "-"); }

void check_names(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty() || name->find('-') != std::string::npos) {
      throw UserError({"grid " + joined(names), "has a dimension named '" + *name + "'",
                       "use names without '-'"});
    }
    if (std::find(names.begin(), name, *name) != name) {
      throw UserError({"grid " + joined(names), "has two dimensions named " + *name,
                       "name each dimension once"});
    }
  }
}

}  // namespace

std::vector<std::string_view> split_dims(std::string_view dims) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= dims.size();) {
    const std::size_t end = std::min(dims.find('-', begin), dims.size());
    parts.push_back(dims.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Grid::Grid(const std::vector<std::int64_t>& shape, const std::vector<std::string>& dim_names,
           std::int64_t rank_offset)
    : names_(dim_names), sizes_(shape), rank_offset_(rank_offset) {
  if (shape.size() != dim_names.size()) {
    throw UserError(
        {"grid " + joined(names_),
         detail::concatenate("has ", names_.size(), " names for ", shape.size(), " sizes"),
         "name each dimension"});
  }
  if (rank_offset < 0)
    throw UserError({"grid " + joined(names_), detail::concatenate("starts at rank ", rank_offset),
                     "start at rank 0 or later"});
  check_names(names_);
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i] < 1)
      throw UserError({"grid " + joined(names_), detail::concatenate(names_[i], " is ", sizes_[i]),
                       "sizes are at least 1"});
    if (sizes_[i] > kMaxRanks / num_ranks_)
      throw UserError({"grid " + joined(names_), "has too many ranks", "lower its sizes"});
    strides_.push_back(num_ranks_);
    num_ranks_ *= sizes_[i];
  }
}

std::size_t Grid::index_of(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    throw UserError({"dimension '" + std::string(name) + "'",
                     "is not in the grid " + joined(names_),
                     "use some of its names, joined by '-'"});
  }
  return static_cast<std::size_t>(found - names_.begin());
}

std::vector<bool> Grid::mask_of(std::string_view dims) const {
  std::vector<bool> mask(names_.size());
  for (const std::string_view name : split_dims(dims)) {
    const std::size_t i = index_of(name);
    if (mask[i])
      throw UserError({"dimensions " + std::string(dims), "name " + std::string(name) + " twice",
                       "name each dimension once"});
    mask[i] = true;
  }
  return mask;
}

std::int64_t Grid::size(std::string_view dims) const {
  const auto mask = mask_of(dims);
  std::int64_t size = 1;
  for (std::size_t i = 0; i < mask.size(); ++i) size *= mask[i] ? sizes_[i] : 1;
  return size;
}

std::vector<std::int64_t> Grid::coordinates(std::int64_t rank) const {
  MEGATRON_CHECK(contains(rank), "rank ", rank, " is not in the grid ", joined(names_));
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    result.push_back((rank - rank_offset_) / strides_[i] % sizes_[i]);
  return result;
}

std::int64_t Grid::coordinate(std::int64_t rank, std::string_view dims) const {
  const auto mask = mask_of(dims);
  const auto all = coordinates(rank);
  std::int64_t position = 0, stride = 1;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    position += all[i] * stride;
    stride *= sizes_[i];
  }
  return position;
}

RankList Grid::group_from(std::int64_t first, const std::vector<bool>& mask) const {
  RankList ranks{first};
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    const std::size_t faster = ranks.size();
    for (std::int64_t step = 1; step < sizes_[i]; ++step) {
      for (std::size_t j = 0; j < faster; ++j) ranks.push_back(ranks[j] + step * strides_[i]);
    }
  }
  return ranks;
}

RankList Grid::group(std::int64_t rank, std::string_view dims) const {
  const auto mask = mask_of(dims);
  const auto all = coordinates(rank);
  std::int64_t first = rank;
  for (std::size_t i = 0; i < mask.size(); ++i) first -= mask[i] ? all[i] * strides_[i] : 0;
  return group_from(first, mask);
}

std::vector<RankList> Grid::groups(std::string_view dims) const {
  const auto mask = mask_of(dims);
  std::vector<bool> others = mask;
  others.flip();
  std::vector<RankList> result;
  for (const std::int64_t first : group_from(rank_offset_, others))
    result.push_back(group_from(first, mask));
  return result;
}

std::int64_t Grid::stride(std::string_view dim) const { return strides_[index_of(dim)]; }

}  // namespace megatron
