#include "megatron/datasets/cleaning/document_cleaner.h"

#include <algorithm>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

void CleaningReport::add_removed(std::string_view rule, std::uint64_t text_bytes,
                                 const std::string& example) {
  Removed& entry = removed[std::string(rule)];
  ++entry.documents;
  entry.bytes += text_bytes;
  if (entry.examples.size() < kMostExamples) entry.examples.push_back(example);
}

CleaningReport::Removed CleaningReport::total() const {
  Removed sum;
  for (const auto& [rule, entry] : removed) {
    sum.documents += entry.documents;
    sum.bytes += entry.bytes;
  }
  return sum;
}

JsonText to_json(const CleaningReport& report) {
  JsonText rules = JsonText::object();
  for (const auto& [rule, entry] : report.removed)
    rules[rule] = {
        {"documents", entry.documents}, {"bytes", entry.bytes}, {"examples", entry.examples}};
  const CleaningReport::Removed total = report.total();
  return {{"documents", report.documents},
          {"bytes", report.bytes},
          {"removed_documents", total.documents},
          {"removed_bytes", total.bytes},
          {"removed", std::move(rules)}};
}

namespace {

constexpr std::size_t kExcerptBytes = 60;

std::string example(const Examination& document) {
  std::string text(utf8_prefix(document.text, kExcerptBytes));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return document.source + ": " + text + (text.size() < document.bytes ? "…" : "");
}

std::string joined(const std::vector<std::vector<std::string_view>>& texts) {
  std::string all;
  bool is_first = true;
  for (const auto& of_key : texts) {
    for (const std::string_view text : of_key) {
      if (!is_first) all += '\n';
      all += text;
      is_first = false;
    }
  }
  return all;
}

}  // namespace

std::string CleaningOptions::identity() const {
  JsonText bounds = JsonText::object();
  for (const DocumentRule& rule : document_rules())
    if (const auto& bound = rules.*rule.bound) bounds[rule.name] = *bound;
  JsonText near = nullptr;
  if (duplicates.near)
    near = JsonText::array({duplicates.near->ngram, duplicates.near->bands, duplicates.near->rows,
                            duplicates.near->seed, duplicates.threshold});
  return JsonText{{"bounds", std::move(bounds)}, {"forbidden", rules.forbidden_text},
                  {"scripts", rules.scripts},    {"script_ratio", rules.min_script_ratio},
                  {"exact", duplicates.exact},   {"near", std::move(near)},
                  {"removed", removed_file}}
      .dump();
}

DocumentExaminer::DocumentExaminer(const CleaningOptions& options)
    : options_(options), filter_(options.rules) {
  if (options_.duplicates.near) hasher_.emplace(*options_.duplicates.near);
}

Examination DocumentExaminer::examine(const std::vector<std::vector<std::string_view>>& texts,
                                      const std::string& source) const {
  std::string storage;
  std::string_view text;
  if (texts.size() == 1 && texts[0].size() == 1) {
    text = texts[0][0];
  } else {
    storage = joined(texts);
    text = storage;
  }
  Examination document{.source = source, .bytes = text.size()};
  if (options_.duplicates.exact) document.keys.text_hash = checksum_128(text);
  if (auto valid = replace_invalid_utf8(text)) {
    storage = std::move(*valid);
    text = storage;
  }
  document.broken_rule = filter_.broken_rule(text);
  document.text = options_.removed_file.empty() ? utf8_prefix(text, kExcerptBytes) : text;
  if (!document.broken_rule.empty() || !hasher_) return document;
  std::vector<std::uint32_t> signature = hasher_->signature(text);
  document.keys.bands = hasher_->band_keys(signature);
  if (options_.duplicates.compares_signatures()) document.keys.signature = std::move(signature);
  return document;
}

void check_removed_file(const fs::path& file, std::span<const fs::path> others) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(file, code);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw UserError({"--removed-file " + file.string(),
                     "is a device, a link, a pipe or a folder, which it would replace",
                     "name a file that does not exist"});
  const fs::path own = fs::weakly_canonical(file, code);
  for (const fs::path& other : others)
    if (fs::equivalent(file, other, code) || own == fs::weakly_canonical(other, code))
      throw UserError({"--removed-file " + file.string(),
                       "is a file that this run reads or writes, which it would replace",
                       "name a file that does not exist"});
}

DocumentCleaner::DocumentCleaner(const CleaningOptions& options, const std::string& output_prefix,
                                 const CleaningState& resumed)
    : options_(options), report_(resumed.report) {
  const std::string journal = output_prefix.empty() ? "" : journal_path(output_prefix);
  if (options_.finds_duplicates())
    duplicates_.emplace(options_.duplicates, journal, resumed.journal_bytes);
  if (options_.removed_file.empty()) return;
  const std::string partial = options_.removed_file + ".partial";
  const fs::path folder = fs::path(partial).parent_path();
  if (!folder.empty()) megatron::create_directories(folder);
  std::optional<FileLock> lock = FileLock::try_lock(partial + ".lock", LockFile::remove);
  if (!lock)
    throw UserError({"another process is writing --removed-file " + options_.removed_file, "",
                     "wait for it, or name another file"});
  removed_lock_.emplace(*std::move(lock));
  removed_.emplace(partial, resumed.removed_bytes);
}

DocumentCleaner::~DocumentCleaner() {
  if (removed_) removed_->remove();
}

void DocumentCleaner::remove(const Examination& document, std::string_view rule,
                             std::optional<std::uint32_t> original) {
  report_.add_removed(rule, document.bytes, example(document));
  if (!removed_) return;
  JsonText line = {{"source", document.source}, {"rule", rule}};
  if (original) line["duplicate_of"] = *original;
  line["text"] = document.text;
  removed_->writer().write(line.dump() + "\n");
}

bool DocumentCleaner::admit(const Examination& document) {
  ++report_.documents;
  report_.bytes += document.bytes;
  if (!document.broken_rule.empty()) {
    remove(document, document.broken_rule, std::nullopt);
    return false;
  }
  if (!duplicates_) return true;
  if (const std::optional<Duplicate> duplicate = duplicates_->find(document.keys)) {
    remove(document, duplicate->rule, duplicate->original);
    return false;
  }
  duplicates_->add(document.keys);
  return true;
}

CleaningState DocumentCleaner::checkpoint() {
  return {.report = report_,
          .journal_bytes = duplicates_ ? duplicates_->checkpoint() : 0,
          .removed_bytes = removed_ ? removed_->checkpoint() : 0};
}

void DocumentCleaner::finish() {
  if (!removed_) return;
  removed_->close();
  std::error_code code;
  fs::rename(removed_->path(), options_.removed_file, code);
  if (code)
    throw UserError({"cannot rename " + removed_->path().string() + " to " + options_.removed_file,
                     code.message(), ""});
}

}  // namespace megatron
