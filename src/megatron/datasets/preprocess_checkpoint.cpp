#include "megatron/datasets/preprocess_checkpoint.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json_fwd.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/index_stamp.h"
#include "megatron/datasets/leftovers.h"

namespace megatron {
namespace {

constexpr int kVersion = 2;

JsonText file_entry(const std::string& file) {
  const std::optional<FileStamp> stamp = file_stamp(file);
  if (!stamp) return {{"file", file}};
  return {{"file", file}, {"bytes", stamp->bytes}, {"time_ns", stamp->time_ns}};
}

JsonText to_json(const PartState& state) {
  return JsonText::array({state.sequences, state.documents, state.tokens});
}

JsonText to_json(const PreprocessCheckpoint& checkpoint) {
  JsonText outputs = JsonText::array();
  for (const auto& parts : checkpoint.outputs) {
    JsonText output = JsonText::array();
    for (const PartState& part : parts) output.push_back(to_json(part));
    outputs.push_back(std::move(output));
  }
  const InputPosition& position = checkpoint.position;
  const PreprocessSummary& counts = checkpoint.counts;
  return {{"position",
           {{"file", position.file},
            {"offset", position.offset},
            {"line", position.line},
            {"finished_bytes", position.finished_bytes}}},
          {"counts",
           {{"text_bytes", counts.text_bytes},
            {"invalid", counts.invalid_documents},
            {"first_invalid", counts.first_invalid},
            {"malformed", counts.malformed_documents},
            {"first_malformed", counts.first_malformed}}},
          {"cleaning",
           {{"report", to_json(checkpoint.cleaning.report)},
            {"journal_bytes", checkpoint.cleaning.journal_bytes},
            {"removed_bytes", checkpoint.cleaning.removed_bytes}}},
          {"outputs", std::move(outputs)}};
}

CleaningReport cleaning_report(const Json& json) {
  CleaningReport report{
      .documents = json.at("documents"), .bytes = json.at("bytes"), .removed = {}};
  for (const auto& [rule, entry] : json.at("removed").items())
    report.removed[rule] = {.documents = entry.at("documents"),
                            .bytes = entry.at("bytes"),
                            .examples = entry.at("examples").get<std::vector<std::string>>()};
  return report;
}

PreprocessCheckpoint from_json(const Json& json) {
  PreprocessCheckpoint checkpoint;
  const Json &position = json.at("position"), &counts = json.at("counts");
  checkpoint.position = {.file = position.at("file"),
                         .offset = position.at("offset"),
                         .line = position.at("line"),
                         .finished_bytes = position.at("finished_bytes")};
  checkpoint.counts.text_bytes = counts.at("text_bytes");
  checkpoint.counts.invalid_documents = counts.at("invalid");
  checkpoint.counts.first_invalid = counts.at("first_invalid");
  checkpoint.counts.malformed_documents = counts.at("malformed");
  checkpoint.counts.first_malformed = counts.at("first_malformed").get<std::vector<std::string>>();
  const Json& cleaning = json.at("cleaning");
  checkpoint.cleaning = {.report = cleaning_report(cleaning.at("report")),
                         .journal_bytes = cleaning.at("journal_bytes"),
                         .removed_bytes = cleaning.at("removed_bytes")};
  for (const Json& output : json.at("outputs")) {
    auto& parts = checkpoint.outputs.emplace_back();
    for (const Json& part : output)
      parts.push_back({.sequences = part.at(0), .documents = part.at(1), .tokens = part.at(2)});
  }
  return checkpoint;
}

}  // namespace

std::string preprocess_job(const PreprocessOptions& options,
                           const std::vector<std::string>& files) {
  JsonText inputs = JsonText::array();
  for (const std::string& file : files) inputs.push_back(file_entry(file));
  const JsonText job = {{"version", kVersion},
                        {"inputs", std::move(inputs)},
                        {"json_keys", options.json_keys},
                        {"text_documents", static_cast<int>(options.text_documents)},
                        {"append_eod", options.append_eod},
                        {"eod", options.eod},
                        {"vocab_size", options.vocab_size},
                        {"accepts_invalid_utf8", options.accepts_invalid_utf8},
                        {"skip_malformed", options.skip_malformed},
                        {"partitions", options.partitions},
                        {"cleaning", options.cleaning.identity()},
                        {"encoder", options.encoder_identity}};
  return job.dump();
}

PreprocessCheckpointFile::PreprocessCheckpointFile(const std::string& output_prefix,
                                                   std::string job)
    : path_(path(output_prefix)), job_(std::move(job)) {
  remove_leftovers(path_ + ".tmp");
}

PreprocessCheckpointFile::~PreprocessCheckpointFile() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

std::string PreprocessCheckpointFile::path(const std::string& output_prefix) {
  return output_prefix + ".partial.json";
}

void PreprocessCheckpointFile::save(const PreprocessCheckpoint& checkpoint) const {
  JsonText json = to_json(checkpoint);
  json["job"] = job_;
  write_file_atomically(path_, json.dump() + "\n");
}

std::optional<PreprocessCheckpoint> PreprocessCheckpointFile::load(const std::string& output_prefix,
                                                                   const std::string& job) {
  std::error_code code;
  if (!fs::exists(path(output_prefix), code)) return std::nullopt;
  const Json json = Json::parse(read_file(path(output_prefix)), nullptr, false);
  try {
    return json.at("job") == job ? std::optional(from_json(json)) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;  // not a file of ours, or a torn one
  }
}

}  // namespace megatron
