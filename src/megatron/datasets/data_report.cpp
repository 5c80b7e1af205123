#include "megatron/datasets/data_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/builder.h"

namespace megatron {
namespace {

constexpr std::size_t kDocuments = 3;  ///< the column of sources that only some tables have

using Row = std::vector<std::string>;

/// Formats 12345678 as "12.3M".
std::string short_count(std::int64_t count) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [size, unit] : kUnits) {
    if (static_cast<double>(count) >= size)
      return format("%.1f%s", static_cast<double>(count) / size, unit);
  }
  return std::to_string(count);
}

/// Formats 1234567 as "1,234,567".
std::string grouped(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// Formats with two decimals, or two significant digits for small values.
std::string epochs_text(double epochs) {
  return epochs > 0 && epochs < 0.01 ? format("%.2g", epochs) : format("%.2f", epochs);
}

Row row_of(const SplitShare& share) {
  const CorpusShare& corpus = share.corpus;
  return {share.split,
          corpus.name,
          format("%.3g", corpus.weight),
          grouped(corpus.documents),
          corpus.tokens > 0 ? short_count(corpus.tokens) : "-",
          grouped(corpus.samples),
          epochs_text(corpus.epochs)};
}

std::string percentage(std::int64_t part, std::int64_t whole) {
  const double share = whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  return grouped(part) + format(" (%.1f %%)", 100 * share);
}

/// Writes rows of equally many cells. Those behind `left_columns` are aligned to the right.
std::string aligned(const std::vector<Row>& rows, std::size_t left_columns) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += "   ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      text += ' ' + (i < left_columns ? row[i] + padding : ' ' + padding + row[i]);
    }
    text += '\n';
  }
  return text;
}

/// Returns the tokens of the corpus that a mixture takes.
std::int64_t phase_tokens(const CorpusShare& corpus, const PhaseShare& phase) {
  return std::llround(phase.epochs * static_cast<double>(corpus.tokens));
}

/// Returns the number of passes over the corpus from the first mixture to this one.
double epochs_until(const CorpusShare& corpus, std::size_t last) {
  double epochs = 0;
  for (std::size_t i = 0; i <= last; ++i) epochs += corpus.phases[i].epochs;
  return epochs;
}

/// Returns a table of what packing strategies make of the data, or "" without any.
std::string packing_table(const std::vector<SplitShare>& shares) {
  std::vector<Row> rows{
      {"packing", "source", "strategy", "documents", "sequences", "padding", "truncated tokens"}};
  for (const auto& [split, corpus] : shares) {
    for (const PackingShare& packing : corpus.packings)
      rows.push_back({split, corpus.name, packing.strategy + (packing.is_used ? " (used)" : ""),
                      grouped(packing.documents), grouped(packing.sequences),
                      percentage(packing.padding, packing.padding + packing.tokens),
                      percentage(packing.truncated, packing.truncated + packing.tokens)});
  }
  return rows.size() > 1 ? aligned(rows, 3) : "";
}

/// Returns a warning for each source with conversations of which no token has a loss.
std::string label_warnings(const std::vector<SplitShare>& shares) {
  std::string text;
  for (const auto& [split, corpus] : shares) {
    if (corpus.unlabeled > 0)
      text += "WARNING: " + percentage(corpus.unlabeled, corpus.conversations) +
              " of the conversations of " + corpus.name + " (" + split +
              ") have no answer within --seq-length: no token has a loss\n";
  }
  return text;
}

/// Returns a table of what each mixture of --blend-schedule takes, or "" without a schedule. "so
/// far" counts the epochs up to the end of the mixture.
std::string phases_table(const std::vector<SplitShare>& shares) {
  std::vector<Row> rows{
      {"mixture", "source", "iterations", "weight", "samples", "tokens", "epochs", "so far"}};
  const std::size_t count = shares.empty() ? 0 : shares[0].corpus.phases.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (const auto& [split, corpus] : shares) {
      if (i >= corpus.phases.size() || corpus.phases[i].weight == 0) continue;
      const PhaseShare& phase = corpus.phases[i];
      rows.push_back(
          {std::to_string(i + 1), corpus.name,
           std::to_string(phase.first_iteration) + "-" + std::to_string(phase.last_iteration),
           format("%.3g", phase.weight), grouped(phase.samples),
           corpus.tokens > 0 ? short_count(phase_tokens(corpus, phase)) : "-",
           epochs_text(phase.epochs), epochs_text(epochs_until(corpus, i))});
    }
  }
  return rows.size() > 1 ? aligned(rows, 2) : "";
}

JsonText phases_json(const CorpusShare& corpus) {
  JsonText list = JsonText::array();
  for (std::size_t i = 0; i < corpus.phases.size(); ++i) {
    const PhaseShare& phase = corpus.phases[i];
    list.push_back(
        {{"first_iteration", phase.first_iteration},
         {"last_iteration", phase.last_iteration},
         {"weight", phase.weight},
         {"samples", phase.samples},
         {"tokens", corpus.tokens > 0 ? JsonText(phase_tokens(corpus, phase)) : JsonText(nullptr)},
         {"epochs", phase.epochs},
         {"epochs_so_far", epochs_until(corpus, i)}});
  }
  return list;
}

JsonText packing_json(const std::vector<PackingShare>& packings) {
  JsonText list = JsonText::array();
  for (const PackingShare& packing : packings)
    list.push_back({{"strategy", packing.strategy},
                    {"used", packing.is_used},
                    {"documents", packing.documents},
                    {"sequences", packing.sequences},
                    {"tokens", packing.tokens},
                    {"padding", packing.padding},
                    {"truncated", packing.truncated}});
  return list;
}

}  // namespace

std::vector<SplitShare> split_shares(const Datasets& datasets,
                                     const std::array<std::optional<std::int64_t>, 3>& num_samples,
                                     const std::vector<std::string>& valid_suffixes) {
  std::vector<SplitShare> shares;
  const auto add = [&](const std::string& split, const Dataset* dataset,
                       const std::optional<std::int64_t>& count) {
    if (dataset == nullptr || count == 0) return;
    for (CorpusShare& share : dataset->shares(count.value_or(dataset->size())))
      shares.push_back({split, std::move(share)});
  };
  add("train", datasets.train(), num_samples[0]);
  for (std::size_t i = 0; i < datasets.valid_sets.size(); ++i)
    add("validation" + (i < valid_suffixes.size() ? valid_suffixes[i] : ""),
        datasets.valid_sets[i].get(), num_samples[1]);
  add("test", datasets.test(), num_samples[2]);
  return shares;
}

std::string data_table(const std::vector<SplitShare>& shares, DataColumns columns) {
  if (shares.empty()) return {};
  std::vector<Row> rows{{"data", "source", "weight", "documents", "tokens", "samples", "epochs"}};
  for (const SplitShare& share : shares) rows.push_back(row_of(share));
  if (columns == DataColumns::brief) {
    for (Row& row : rows) row.erase(row.begin() + kDocuments);
  }
  return aligned(rows, 2) + phases_table(shares) + packing_table(shares) + label_warnings(shares);
}

JsonText data_json(const std::vector<SplitShare>& shares) {
  JsonText list = JsonText::array();
  for (const auto& [split, corpus] : shares) {
    JsonText share{{"split", split},
                   {"source", corpus.name},
                   {"weight", corpus.weight},
                   {"documents", corpus.documents},
                   {"tokens", corpus.tokens > 0 ? JsonText(corpus.tokens) : JsonText(nullptr)},
                   {"samples", corpus.samples},
                   {"epochs", corpus.epochs}};
    if (!corpus.phases.empty()) share["mixtures"] = phases_json(corpus);
    if (corpus.unlabeled > 0) share["conversations_without_loss"] = corpus.unlabeled;
    if (!corpus.packings.empty()) share["packing"] = packing_json(corpus.packings);
    list.push_back(std::move(share));
  }
  return list;
}

}  // namespace megatron
