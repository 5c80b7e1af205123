// The fixture of the tests of preprocess(): a folder with an input, and a tokenizer whose ids are
// bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "datasets/corpus.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/preprocess.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {

inline std::vector<std::int32_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()),
          reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
}

inline std::string gzip(const std::string& text) {
  z_stream state{};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class PreprocessTest : public ::testing::Test {
 protected:
  PreprocessSummary run() { return preprocess(options_, bytes_of); }
  std::string error() {
    return message_of([&] { run(); });
  }
  /// Writes `content` to the input file.
  void input(const std::string& name, const std::string& content) {
    test::write_text_file(folder_ / name, content);
    options_.inputs = {folder_ / name};
  }
  std::vector<std::string> documents(const std::string& key = "text") {
    const IndexedDataset dataset(folder_ / ("out_" + key + "_document"));
    std::vector<std::string> texts;
    for (std::int64_t document = 0; document < dataset.num_documents(); ++document) {
      auto& text = texts.emplace_back();
      for (auto sequence = dataset.document_indices()[document];
           sequence < dataset.document_indices()[document + 1]; ++sequence) {
        std::vector<std::int64_t> ids(
            static_cast<std::size_t>(dataset.sequence_lengths()[sequence]));
        dataset.read(sequence, 0, ids);
        for (const auto id : ids) text += id == 256 ? '$' : static_cast<char>(id);
        text += "|";
      }
    }
    return texts;
  }

  /// The number of files in the folder.
  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  /// Runs in a process that ends without a destructor when the tokenizer has seen `documents`,
  /// which must be more than a chunk, and there is a checkpoint.
  void run_and_die_after(int documents) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      options_.workers = 1;
      int seen = 0;
      preprocess(options_, [&](std::string_view text) {
        while (seen == documents) {
          if (fs::exists(folder_ / "out.partial.json")) ::_exit(77);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ++seen;
        return bytes_of(text);
      });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 77);
  }

  TemporaryFolder folder_;
  PreprocessOptions options_{.inputs = {},
                             .output_prefix = folder_ / "out",
                             .append_eod = true,
                             .eod = 256,
                             .vocab_size = 257,
                             .workers = 3};
};

}  // namespace megatron
