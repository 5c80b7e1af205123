// Compares the stages of many flags with those of Megatron Core (make_layout_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

struct RealLayout {
  std::vector<std::string> flags;
  std::vector<StageLayers> stages;  ///< empty: Megatron Core refuses the flags or loses layers
  std::string line;
  bool loses = false;
};

/// Parses "4+2EL": first layer + number of layers, E embedding, L output.
StageLayers read_stage(const std::string& text) {
  StageLayers stage;
  char plus = 0;
  std::istringstream(text) >> stage.first_layer >> plus >> stage.num_layers;
  stage.has_embedding = text.find('E') != std::string::npos,
  stage.has_output = text.find('L') != std::string::npos;
  return stage;
}

/// Returns the fixtures, or the file that MEGATRON_PIPELINE_LAYOUTS names
/// (tests/parity/pipeline_layout_parity.py).
std::vector<RealLayout> real_layouts() {
  const char* other = std::getenv("MEGATRON_PIPELINE_LAYOUTS");
  std::ifstream file(
      other != nullptr ? other : MEGATRON_SOURCE_DIR "/tests/config/fixtures/pipeline_layouts.txt");
  std::vector<RealLayout> all;
  for (std::string line; std::getline(file, line);) {
    RealLayout layout{.flags = {}, .stages = {}, .line = line};
    std::istringstream words(line);
    std::string word;
    while (words >> word && word != ":") layout.flags.push_back(word);
    while (words >> word) {
      if (word == "loses") layout.loses = true;
      if (word != "refused" && word != "loses") layout.stages.push_back(read_stage(word));
    }
    all.push_back(layout);
  }
  return all;
}

/// Returns the stages of this program, or none and the reason.
std::vector<StageLayers> our_stages(const RealLayout& real, std::string& reason) {
  Settings settings;
  parse_command_line(settings_table(), real.flags, settings, "pretrain");
  try {
    return pipeline_layout(*settings.parallel, settings.model->num_layers).stages;
  } catch (const UserError& error) {
    reason = error.what();
    return {};
  }
}

bool has_flag(const RealLayout& real, const std::string& name) {
  return real.line.find(name) != std::string::npos;
}

/// Returns whether a stage has no layers although no flag requires it. Megatron Core accepts it;
/// this program refuses it.
bool leaves_a_stage_empty(const RealLayout& real) {
  const bool is_asked_for =
      has_flag(real, "--pipeline-model-parallel-layout") || has_flag(real, "--account-for-");
  return !is_asked_for &&
         std::any_of(real.stages.begin(), real.stages.end(),
                     [](const StageLayers& stage) { return stage.num_layers == 0; });
}

TEST(PipelineLayout, StagesAreMegatronCores) {
  int same = 0, more = 0;
  for (const RealLayout& real : real_layouts()) {
    std::string reason;
    const std::vector<StageLayers> ours = our_stages(real, reason);
    if (real.loses || leaves_a_stage_empty(real)) {
      EXPECT_TRUE(ours.empty()) << real.line;
    } else if (real.stages.empty()) {
      if (has_flag(real, "--pipeline-model-parallel-layout")) {
        EXPECT_TRUE(ours.empty()) << real.line;
      }
      more += !ours.empty();
    } else {
      EXPECT_EQ(ours, real.stages) << real.line << "\n" << reason;
      ++same;
    }
  }
  EXPECT_GT(same, 400);
  EXPECT_GT(more, 20);  // cases with a remainder of layers
}

}  // namespace

void PrintTo(const StageLayers& stage, std::ostream* out) {
  *out << stage.first_layer << "+" << stage.num_layers << (stage.has_embedding ? "E" : "")
       << (stage.has_output ? "L" : "");
}

}  // namespace megatron
