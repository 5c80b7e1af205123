// Parses ten thousand random command lines and files. Each must be accepted or refused with a
// message, without a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "megatron/base/files.h"
#include "megatron/config/config_file.h"
#include "megatron/config/print_config.h"
#include "megatron/config/run_command.h"
#include "megatron/config/run_settings.h"

namespace megatron {
namespace {

using Args = std::vector<std::string>;

/// Builds words from known flags, misspelt flags and random values.
class WordSource {
 public:
  explicit WordSource(std::uint64_t seed) : random_(seed) {
    for (const Field& field : run_table().set().fields) flags_.push_back(field.flag());
  }

  Args command_line() {
    Args words;
    for (std::size_t count = below(12); count > 0; --count) {
      std::string word = below(4) == 0 ? value() : flag();
      if (below(4) == 0) word += "=" + value();
      words.push_back(std::move(word));
      if (below(2) == 0) words.push_back(value());
    }
    return words;
  }

  std::string damaged(std::string text) {
    for (std::size_t count = 1 + below(4); count > 0 && !text.empty(); --count) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, std::string(1 + below(3), "-=[]{}:\"'\n\t&*!|%@#"[below(18)]));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  std::string flag() {
    const std::string& flag = flags_[below(flags_.size())];
    return below(8) == 0 ? damaged(flag) : flag;
  }

  std::string value() {
    static const Args values{"0",
                             "1",
                             "-1",
                             "2",
                             "12",
                             "1e-4",
                             "nan",
                             "inf",
                             "-",
                             "--",
                             "",
                             "none",
                             "true",
                             "false",
                             "[1]*3",
                             "([1]+[0])*2",
                             "a,b,c",
                             "9223372036854775807",
                             "99999999999999999999",
                             "1.5",
                             "0x10",
                             "rope",
                             "RMSNorm",
                             "cosine",
                             "WSD",
                             "gpt",
                             "/no/such.yaml",
                             "969, 30, 1",
                             "7,0",
                             "\xff\xfe",
                             "é",
                             std::string(5000, 'x'),
                             "-h1",
                             "=",
                             " ",
                             "\n"};
    return below(6) == 0 ? damaged(values[below(values.size())]) : values[below(values.size())];
  }

  std::mt19937_64 random_;
  Args flags_;
};

TEST(Fuzz, RandomCommandLinesExitWith0Or2) {
  WordSource source(20240601);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  int accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    const Args words = source.command_line();
    const int code = run_command("pretrain", [&] {
      const auto run = read_run(words);
      return config_json(run).empty() ? 1 : 0;
    });
    accepted += code == 0;
    ASSERT_TRUE(code == 0 || code == 2) << "line " << i << ": " << ::testing::PrintToString(words);
  }
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  EXPECT_GT(accepted, 0);
}

TEST(Fuzz, DamagedFilesAreReadOrRefused) {
  WordSource source(7);
  const std::string yaml =
      "model:\n  num_layers: 12\n  window_size: [127, 0]\ntraining:\n  micro_batch_size: "
      "4\nswiglu: true\nsplit: \"969, 30, 1\"\ndata_path: ['0.3', "
      "a, 0.7, b]\n";
  const std::string toml =
      "num_layers = 12\nsplit = \"9,1,0\"\n[data]\ndata_path = [\"0.3\", \"a\"]\nmmap_bin_files = "
      "false\n[learning_rate]\nlr = 1e-4\n";
  for (int i = 0; i < 5000; ++i) {
    for (const bool is_yaml : {true, false}) {
      const std::string text = source.damaged(is_yaml ? yaml : toml);
      try {
        is_yaml ? parse_yaml(text, "f") : parse_toml(text, "f");
        if (is_yaml) parse_nested_yaml(text, "f");
      } catch (const UserError& error) {
        ASSERT_TRUE(std::string(error.what()).starts_with("f")) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace megatron
