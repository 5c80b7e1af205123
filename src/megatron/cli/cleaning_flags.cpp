#include "megatron/cli/cleaning_flags.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

const FieldTable<DocumentRules>& rules_table() {
  return field_table<DocumentRules>([](auto& t) {
    t.group("Cleaning");
    for (const DocumentRule& rule : document_rules()) {
      std::string help = rule.help;
      if (rule.gopher) help += format("; Gopher's bound is %g", *rule.gopher);
      FieldBuilder field = t.field(rule.name, rule.bound, help);
      field.at_least(0);
      if (rule.is_ratio) field.at_most(1);
    }
    t.field("forbidden_text", &DocumentRules::forbidden_text,
            "remove documents that contain one of these texts, in upper or lower case")
        .value_name("TEXT");
    t.field("scripts", &DocumentRules::scripts,
            "remove documents whose letters are mostly of other Unicode scripts than these, for "
            "example Latin Cyrillic")
        .value_name("SCRIPT");
  });
}

void add_duplicate_fields(FieldTable<CleaningFlags>& t) {
  using Flags = CleaningFlags;
  const MinHashOptions defaults;
  const auto or_default = [](std::int64_t value) { return "; default: " + std::to_string(value); };
  t.field("exact_dedup", &Flags::exact_dedup,
          "remove documents whose text equals that of an earlier one, by a hash of 128 bits");
  t.field("minhash_dedup", &Flags::minhash_dedup,
          "remove near duplicates of earlier documents that stay: those that share a MinHash band "
          "with one (locality-sensitive hashing)");
  t.field("minhash_ngrams", &Flags::minhash_ngrams,
          "words in a shingle" + or_default(defaults.ngram))
      .between(1, 1000);
  t.field("minhash_bands", &Flags::minhash_bands,
          "number of bands B; texts of Jaccard similarity s share one with the probability "
          "1 - (1 - s^R)^B" +
              or_default(defaults.bands))
      .between(1, 10000);
  t.field("minhash_rows", &Flags::minhash_rows,
          "permutations in a band, R" + or_default(defaults.rows))
      .between(1, 10000);
  t.field("minhash_seed", &Flags::minhash_seed,
          "seed of the permutations" + or_default(defaults.seed))
      .between(0, 4294967295.0);
  t.field("minhash_threshold", &Flags::minhash_threshold,
          "of the documents that share a band, remove those whose Jaccard similarity is estimated "
          "to be at least this; default: all of them")
      .above(0)
      .at_most(1);
}

/// Throws if one of `given` is set although `needed` is not.
void require(bool needed, const char* flag,
             const std::vector<std::pair<const char*, bool>>& given) {
  if (needed) return;
  for (const auto& [name, is_given] : given) {
    if (is_given)
      throw UserError({std::string(name) + " has an effect only with " + flag, "",
                       std::string("add ") + flag + ", or leave it out"});
  }
}

}  // namespace

const FieldTable<CleaningFlags>& cleaning_table() {
  using Flags = CleaningFlags;
  return field_table<Flags>([](auto& t) {
    t.group("Cleaning");
    t.field("gopher_rules", &Flags::gopher_rules,
            "apply Gopher's rules of quality and repetition, with those bounds that are not given "
            "here; they are for English");
    t.include(&Flags::rules, rules_table());
    t.field("min_script_ratio", &Flags::min_script_ratio,
            "least share of the letters that are of --scripts; default: 0.8")
        .between(0, 1);
    add_duplicate_fields(t);
    t.field("removed_file", &Flags::removed_file,
            "write the removed documents to this file as JSON lines with source, rule and text")
        .value_name("FILE");
  });
}

CleaningOptions cleaning_options(const CleaningFlags& flags) {
  require(flags.minhash_dedup, "--minhash-dedup",
          {{"--minhash-ngrams", flags.minhash_ngrams.has_value()},
           {"--minhash-bands", flags.minhash_bands.has_value()},
           {"--minhash-rows", flags.minhash_rows.has_value()},
           {"--minhash-seed", flags.minhash_seed.has_value()},
           {"--minhash-threshold", flags.minhash_threshold.has_value()}});
  require(!flags.rules.scripts.empty(), "--scripts",
          {{"--min-script-ratio", flags.min_script_ratio.has_value()}});
  CleaningOptions options{
      .rules = flags.rules, .duplicates = {}, .removed_file = flags.removed_file};
  if (flags.gopher_rules) add_gopher_rules(options.rules);
  if (flags.min_script_ratio) options.rules.min_script_ratio = *flags.min_script_ratio;
  options.duplicates.exact = flags.exact_dedup;
  if (flags.minhash_dedup) {
    MinHashOptions& near = options.duplicates.near.emplace();
    near.ngram = flags.minhash_ngrams.value_or(near.ngram);
    near.bands = flags.minhash_bands.value_or(near.bands);
    near.rows = flags.minhash_rows.value_or(near.rows);
    near.seed = flags.minhash_seed.value_or(near.seed);
    options.duplicates.threshold = flags.minhash_threshold.value_or(0);
  }
  require(options.is_active(), "a rule of cleaning, such as --exact-dedup",
          {{"--removed-file", !flags.removed_file.empty()}});
  return options;
}

void print_cleaning_report(std::ostream& out, const CleaningReport& report) {
  if (report.documents == 0) return;
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const CleaningReport::Removed total = report.total();
  out << format("cleaning removed %lld of %lld documents, %.1f of %.1f MB of text\n",
                static_cast<long long>(total.documents), static_cast<long long>(report.documents),
                megabytes(total.bytes), megabytes(report.bytes));
  std::vector<std::pair<std::string, CleaningReport::Removed>> rules(report.removed.begin(),
                                                                     report.removed.end());
  std::ranges::stable_sort(rules, std::ranges::greater(),
                           [](const auto& rule) { return rule.second.documents; });
  for (const auto& [rule, removed] : rules) {
    std::string flag = rule;
    std::ranges::replace(flag, '_', '-');
    out << format("  --%s: %lld documents, %.1f MB\n", flag.c_str(),
                  static_cast<long long>(removed.documents), megabytes(removed.bytes));
    for (const std::string& example : removed.examples) out << "    " << example << "\n";
  }
}

}  // namespace megatron
