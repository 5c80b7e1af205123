#include "megatron/inference/completions/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/files.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string line_of(const std::string& id) {
  return R"({"custom_id": ")" + id +
         R"(", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}})" + "\n";
}

TEST(BatchFile, HasARequestOnEachLine) {
  const std::vector<BatchLine> lines = read_batch(line_of("a") + " \t\n" + line_of("b"), "x.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].custom_id, "a");
  EXPECT_EQ(lines[1].source, "x.jsonl, line 3");
  EXPECT_EQ(lines[1].number, 1u);
  EXPECT_FALSE(is_batch_chat(lines[1]));
  EXPECT_THAT(read_batch_request(lines[1]).prompts, ElementsAre(CompletionPrompt("a")));
  const BatchLine chat{"x.jsonl, line 1", "a", R"({"method": "POST", "url": "/v1/chat/completions",
      "body": {"messages": [], "b": 1, "a": 2}})"};
  EXPECT_TRUE(is_batch_chat(chat));
  EXPECT_EQ(batch_body(chat), R"({"messages":[],"b":1,"a":2})");
}

TEST(BatchFile, MistakesNameTheLine) {
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"\n", "x.jsonl: contains no request"},
           {line_of("a") + "{\"custom_id\"\n", "x.jsonl, line 2: not valid JSON"},
           {"[1]\n", "x.jsonl, line 1"},
           {"{\"body\": {}}\n", "x.jsonl, line 1: field 'custom_id' is missing"},
           {line_of("a") + line_of("a"),
            "x.jsonl, line 2: field 'custom_id': 'a' is that of x.jsonl, line 1"}})
    EXPECT_THAT(message_of([&, content = content] { read_batch(content, "x.jsonl"); }),
                HasSubstr(text));
}

TEST(BatchFile, RequestsForOtherApisAreRefused) {
  const auto message = [](const std::string& text) {
    return message_of([&] {
      const BatchLine line{"line 7", "a", text};
      if (!is_batch_chat(line)) return read_batch_request(line).model;
      return batch_body(line);
    });
  };
  EXPECT_THAT(message(R"({"method": "POST", "url": "/v1/embeddings", "body": {}})"),
              HasSubstr("line 7: field 'url': '/v1/embeddings' is not in this version"));
  EXPECT_THAT(message(R"({"method": "GET", "url": "/v1/completions", "body": {}})"),
              HasSubstr("field 'method'"));
  EXPECT_THAT(message(R"({"method": "POST", "url": "/v1/completions"})"),
              HasSubstr("field 'body' is missing"));
  EXPECT_THAT(message(R"({"method": "POST", "url": "/v1/completions", "body": {"prompt": 1}})"),
              HasSubstr("line 7: body: field 'prompt'"));
  EXPECT_THAT(message(R"({"method": "POST", "url": "/v1/chat/completions", "body": 1})"),
              HasSubstr("field 'body' must be an object"));
}

TEST(BatchFile, AnswersHaveTheFormOfOpenAI) {
  EXPECT_EQ(batch_answer({"line 1", "a", ""}, 200, {{"object", "text_completion"}}),
            R"({"id":"batch_req_a","custom_id":"a","response":{"status_code":200,)"
            R"("request_id":"req_a","body":{"object":"text_completion"}},"error":null})"
            "\n");
}

TEST(BatchFile, AnOutputIsContinuedBehindItsLastWholeLine) {
  const TemporaryFolder folder;
  const auto path = folder / "answers.jsonl";
  const std::vector<BatchLine> lines = read_batch(line_of("a") + line_of("b"), "x.jsonl");
  EXPECT_TRUE(read_answered(path, "x.jsonl", lines).empty());
  const std::string whole = batch_answer(lines[0], 200, {});
  for (const std::size_t size : {1u, 20u, 60u}) {
    folder.write("answers.jsonl", whole + whole.substr(0, size));
    EXPECT_THAT(read_answered(path, "x.jsonl", lines), ElementsAre("a"));
    EXPECT_EQ(read_file(path), whole);
  }
  AnswerWriter(path, true).add(7, "next\n");
  EXPECT_EQ(read_file(path), whole + "next\n");
  folder.write("answers.jsonl", whole.substr(0, 20));
  EXPECT_TRUE(read_answered(path, "x.jsonl", lines).empty());
  EXPECT_EQ(read_file(path), "");
}

TEST(BatchFile, AnOutputThatHoldsSomethingElseIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::string requests = line_of("a") + line_of("b");
  const std::vector<BatchLine> lines = read_batch(requests, "x.jsonl");
  const std::string answer = batch_answer(lines[0], 200, {});
  const std::string rest = answer.substr(0, 20);
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"num_layers": 2})", ": its last line is not an answer to a request"},
           {"{\n  \"num_layers\": 2\n}", ", line 1: not valid JSON"},
           {"[1]\n" + rest, ", line 1: is not an answer to a request"},
           {answer + R"({"custom_id": "b"})", ": its last line is not an answer to a request"},
           {requests + rest, ", line 1: is not an answer to a request"},
           {R"({"custom_id": "c", "response": null})"
            "\n" +
                rest,
            ", line 1: answers 'c', which is none of the requests"}}) {
    const std::string path = folder.write("output", content);
    EXPECT_THAT(message_of([&] { read_answered(path, "x.jsonl", lines); }),
                HasSubstr("--output " + path + text));
    EXPECT_EQ(read_file(path), content);
  }
}

TEST(BatchFile, AnOutputIsNotTheFileOfTheRequests) {
  const TemporaryFolder folder;
  const std::string requests = line_of("a") + R"({"custom_id": "b"})";
  const std::string path = folder.write("x.jsonl", requests);
  const std::string link = (folder / "link").string();
  std::filesystem::create_symlink(path, link);
  for (const std::string& output : {path, link})
    EXPECT_THAT(message_of([&] { read_answered(output, path, read_batch(requests, path)); }),
                HasSubstr("--output " + output + ": is the file of the requests"));
  EXPECT_EQ(read_file(path), requests);
}

TEST(AnswerWriter, WritesInOrderOrAtOnce) {
  const TemporaryFolder folder;
  const auto written = [&](bool as_finished) {
    const auto path = folder / (as_finished ? "finished" : "ordered");
    AnswerWriter writer(path, as_finished);
    std::vector<std::string> contents;
    for (const std::size_t index : {1, 3, 0, 2}) {
      writer.add(index, std::to_string(index));
      contents.push_back(read_file(path));
    }
    return contents;
  };
  EXPECT_THAT(written(false), ElementsAre("", "", "01", "0123"));
  EXPECT_THAT(written(true), ElementsAre("1", "13", "130", "1302"));
}

}  // namespace
}  // namespace megatron
