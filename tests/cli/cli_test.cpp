// Runs the transcripts tests/cli/*.test. Each runs in an empty folder. Lines of a transcript:
//   # text         a comment
//   $ command      a shell command, in which `megatron` is the built program
//   text           a line of stdout; `...` matches any lines, `…` any text within a line
//   ! text         a text that stderr must contain; without such lines stderr is not checked
//   ? 2            the exit code; without such a line it must be 0
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct Step {
  int line = 0;
  std::string command;
  Lines output, errors;
  int code = 0;
};

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Step> read_transcript(const fs::path& path) {
  std::vector<Step> steps;
  int number = 0;
  for (const std::string& line : lines_of(megatron::read_file(path))) {
    ++number;
    if (line.starts_with("$ ")) {
      steps.push_back({number, line.substr(2), {}, {}, 0});
    } else if (line.starts_with("#") || (steps.empty() && line.empty())) {
      continue;
    } else if (steps.empty()) {
      throw std::runtime_error(path.string() + ": text before the first command");
    } else if (line.starts_with("! ")) {
      steps.back().errors.push_back(line.substr(2));
    } else if (line.starts_with("? ")) {
      steps.back().code = std::stoi(line.substr(2));
    } else {
      steps.back().output.push_back(line);
    }
  }
  for (Step& step : steps) {
    while (!step.output.empty() && step.output.back().empty()) step.output.pop_back();
  }
  return steps;
}

/// Returns whether `line` matches `pattern`, in which each … matches any text.
bool line_matches(const std::string& pattern, const std::string& line) {
  static const std::string gap = "…";
  std::size_t at = 0, from = 0;
  for (bool first = true;; first = false) {
    const std::size_t end = pattern.find(gap, from);
    const std::string part =
        pattern.substr(from, end == std::string::npos ? std::string::npos : end - from);
    if (end == std::string::npos) {
      if (first) return line == part;
      return line.size() >= at + part.size() && line.ends_with(part);
    }
    const std::size_t found = line.find(part, at);
    if (found == std::string::npos || (first && found != 0)) return false;
    at = found + part.size();
    from = end + gap.size();
  }
}

bool lines_match(std::span<const std::string> patterns, std::span<const std::string> lines) {
  if (patterns.empty()) return lines.empty();
  if (patterns[0] != "...") {
    return !lines.empty() && line_matches(patterns[0], lines[0]) &&
           lines_match(patterns.subspan(1), lines.subspan(1));
  }
  for (std::size_t skip = 0; skip <= lines.size(); ++skip) {
    if (lines_match(patterns.subspan(1), lines.subspan(skip))) return true;
  }
  return false;
}

int run_shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class Transcript : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override { fs::create_directories(folder_ / "home"); }

  void check(const Step& step) {
    const fs::path out = folder_ / "out", err = folder_ / "err";
    const std::string prepare = "export PATH=" + quoted(std::string(MEGATRON_BINARY_DIR) + "/bin") +
                                ":$PATH COLUMNS=100; cd " + quoted((folder_ / "home").string()) +
                                " && ";
    const int code = run_shell(prepare + "{ " + step.command + "\n} >" + quoted(out.string()) +
                               " 2>" + quoted(err.string()) + " </dev/null");
    const std::string output = megatron::read_file(out), errors = megatron::read_file(err);
    const std::string where =
        GetParam().filename().string() + ":" + std::to_string(step.line) + ": " + step.command;
    EXPECT_EQ(code, step.code) << where << "\nstdout:\n" << output << "stderr:\n" << errors;
    EXPECT_TRUE(lines_match(step.output, lines_of(output))) << where << "\nstdout:\n" << output;
    for (const std::string& expected : step.errors)
      EXPECT_NE(errors.find(expected), std::string::npos)
          << where << "\nmissing: " << expected << "\nstderr:\n"
          << errors;
  }

  const megatron::TemporaryFolder folder_;
};

TEST_P(Transcript, Holds) {
  for (const Step& step : read_transcript(GetParam())) check(step);
}

std::vector<fs::path> transcripts() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(MEGATRON_SOURCE_DIR) / "tests/cli")) {
    if (entry.path().extension() == ".test") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

INSTANTIATE_TEST_SUITE_P(Cli, Transcript, ::testing::ValuesIn(transcripts()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(TranscriptMatcher, KnowsGaps) {
  EXPECT_TRUE(line_matches("a…c", "abc"));
  EXPECT_TRUE(line_matches("…", ""));
  EXPECT_FALSE(line_matches("a…c", "abcd"));
  EXPECT_FALSE(line_matches("abc", "abcd"));
  EXPECT_FALSE(line_matches("b…", "abc"));
  const Lines lines{"a", "b", "c"};
  EXPECT_TRUE(lines_match(Lines{"a", "..."}, lines));
  EXPECT_TRUE(lines_match(Lines{"...", "c"}, lines));
  EXPECT_FALSE(lines_match(Lines{"...", "b"}, lines));
}

}  // namespace
