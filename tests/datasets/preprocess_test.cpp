#include "megatron/datasets/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "datasets/corpus.h"
#include "datasets/preprocess_fixture.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/json_lines.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PreprocessTest, ReadsJsonLines) {
  input("in.jsonl",
        "{\"text\": \"a\\u00e9\\n\", \"n\": 1}\n\n{\"n\": [{}], \"text\": \"\"}\r\n{\"text\": "
        "[\"x\", \"\", \"yz\"]}\n{\"text\":\"1\",\"text\":\"2\"}");
  const PreprocessSummary summary = run();
  EXPECT_THAT(documents(), ElementsAre("a\xc3\xa9\n$|", "", "x|yz$|", "2$|"));
  EXPECT_EQ(summary.outputs[0].documents, 4);
  EXPECT_EQ(summary.outputs[0].sequences, 4);
  EXPECT_EQ(IndexedDataset(folder_ / "out_text_document").type(), TokenDtype::uint16);
}

// The expected texts are Python's bytes.decode('utf-8', errors='replace').
TEST_F(PreprocessTest, ReadsInvalidUtf8AlikeInTextAndJson) {
  const std::string bad =
      "a\xff"
      "b\xe2\x82"
      "c";
  for (const auto& [name, content] :
       {std::pair<std::string, std::string>{"in.txt", "fine\n\n" + bad + "\n\n\xc3\xa9\n"},
        {"in.jsonl", R"({"text":"fine"})"
                     "\n\n"
                     R"({"text":")" +
                         bad +
                         "\"}\n\n"
                         R"({"text":"\u00e9"})"
                         "\n"}}) {
    input(name, content);
    const PreprocessSummary summary = run();
    EXPECT_THAT(documents(), ElementsAre("fine$|",
                                         "a\xef\xbf\xbd"
                                         "b\xef\xbf\xbd"
                                         "c$|",
                                         "\xc3\xa9$|"))
        << name;
    EXPECT_EQ(summary.invalid_documents, 1) << name;
    EXPECT_EQ(summary.first_invalid, (folder_ / name).string() + ":3");
  }
  input("in.txt", bad);
  options_.accepts_invalid_utf8 = true;
  EXPECT_EQ(run().invalid_documents, 0);
  EXPECT_THAT(documents(), ElementsAre(bad + "$|"));
}

TEST_F(PreprocessTest, ReadsTheFilesBelowAFolderInOrder) {
  fs::create_directories(folder_ / "in/b");
  test::write_text_file(folder_ / "in/c.txt", "third");
  test::write_text_file(folder_ / "in/b/x.jsonl.gz", gzip("{\"text\":\"second\"}\n"));
  test::write_text_file(folder_ / "in/a.jsonl", "{\"text\":\"first\"}\n");
  test::write_text_file(folder_ / "in/README.md", "no document");
  options_.inputs = {folder_ / "in"};
  run();
  EXPECT_THAT(documents(), ElementsAre("first$|", "second$|", "third$|"));
  fs::create_directories(folder_ / "empty");
  options_.inputs = {folder_ / "empty"};
  EXPECT_THAT(error(), HasSubstr("holds no file of documents"));
  options_.inputs = {"-", "-"};
  EXPECT_THAT(error(), HasSubstr("standard input twice"));
}

// A document whose second key is wrong leaves nothing in the dataset of the first.
TEST_F(PreprocessTest, SkipsAndNamesMalformedDocuments) {
  input("in.jsonl",
        "{\"a\": \"1\", \"b\": \"2\"}\n{\"a\": \n{\"a\": \"3\"}\n{\"a\": \"4\", \"b\": 5}\n[]\n"
        "{\"a\": \"\", \"b\": \"6\"}\n");
  options_.json_keys = {"a", "b"};
  options_.append_eod = false;
  EXPECT_THAT(error(), HasSubstr("in.jsonl:2: not valid JSON"));
  options_.skip_malformed = true;
  const PreprocessSummary summary = run();
  EXPECT_THAT(documents("a"), ElementsAre("1|", ""));
  EXPECT_THAT(documents("b"), ElementsAre("2|", "6|"));
  EXPECT_EQ(summary.malformed_documents, 4);
  EXPECT_THAT(
      summary.first_malformed,
      ElementsAre(HasSubstr("in.jsonl:2: not valid JSON"), HasSubstr("in.jsonl:3: no field 'b'"),
                  HasSubstr("in.jsonl:4: field 'b' must be a string"),
                  HasSubstr("in.jsonl:5: expected a JSON object")));
}

TEST_F(PreprocessTest, SkipsAlikeForAnyNumberOfWorkers) {
  std::string lines, good;
  for (int i = 0; i < 90000; ++i) {
    const std::string line = "{\"text\": \"line " + std::to_string(i) + "\"}\n";
    lines += i % 7 == 3 ? "{broken " + std::to_string(i) + "\n" : line;
    if (i % 7 != 3) good += line;
  }
  input("good.jsonl", good);
  run();
  const std::string bin = test::read_text_file(folder_ / "out_text_document.bin"),
                    idx = test::read_text_file(folder_ / "out_text_document.idx");
  input("in.jsonl", lines);
  options_.skip_malformed = true;
  for (const int workers : {1, 3}) {
    options_.workers = workers;
    const PreprocessSummary summary = run();
    EXPECT_EQ(summary.malformed_documents, 12857);
    EXPECT_EQ(summary.first_malformed.size(), PreprocessSummary::kMostShown);
    EXPECT_THAT(summary.first_malformed[0], HasSubstr("in.jsonl:4: "));
    EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.bin") == bin);
    EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.idx") == idx);
  }
  input("in.jsonl", "{broken\n");
  EXPECT_THAT(error(), HasSubstr("no tokens"));
}

TEST_F(PreprocessTest, WritesOneDatasetForEachKey) {
  input("in.jsonl", "{\"a\": \"1\", \"b\": \"22\"}\n{\"b\": \"4\", \"a\": \"333\"}\n");
  options_.json_keys = {"a", "b"};
  options_.append_eod = false;
  run();
  EXPECT_THAT(documents("a"), ElementsAre("1|", "333|"));
  EXPECT_THAT(documents("b"), ElementsAre("22|", "4|"));
}

TEST_F(PreprocessTest, GivesTheSameFilesForAnyNumberOfWorkers) {
  std::string lines;
  for (int i = 0; i < 60000; ++i)
    lines += "{\"text\": \"" +
             std::string(static_cast<std::size_t>(i % 97), static_cast<char>('a' + i % 26)) +
             "\"}\n";
  input("in.jsonl", lines);
  options_.workers = 1;
  run();
  const std::string bin = test::read_text_file(folder_ / "out_text_document.bin"),
                    idx = test::read_text_file(folder_ / "out_text_document.idx");
  for (const auto& [name, content] :
       {std::pair<std::string, std::string>{"in.jsonl.gz",
                                            gzip(lines.substr(0, 1000)) + gzip(lines.substr(1000))},
        {"padded.jsonl.gz", gzip(lines) + std::string(1000, '\0')},
        {"in.jsonl.zst", zstd(lines.substr(0, 1000)) + zstd(lines.substr(1000))},
        {"skippable_frame.jsonl.zst",
         std::string("\x50\x2a\x4d\x18\x04\0\0\0skip", 12) + zstd(lines)},
        {"in.jsonl", lines}}) {
    input(name, content);
    options_.workers = 4;
    run();
    EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.bin") == bin &&
                test::read_text_file(folder_ / "out_text_document.idx") == idx)
        << name;
  }
}

// What a run has written into the folder of its input is no input of the next one.
TEST_F(PreprocessTest, LeavesOutItsOwnFiles) {
  input("in.jsonl", "{\"text\": \"a\"}\n");
  options_.inputs = {folder_.path()};
  test::write_text_file(folder_ / "out.partial.json", "{}\n");
  run();
  EXPECT_THAT(documents(), ElementsAre("a$|"));
}

TEST_F(PreprocessTest, CutsTextFiles) {
  input("in.txt", "\xef\xbb\xbf\n\none\ntwo\n \t\nthree\r\n\r\n\n\nfour");
  run();
  EXPECT_THAT(documents(), ElementsAre("one\ntwo$|", "three$|", "four$|"));
  options_.text_documents = DocumentKind::line;
  run();
  EXPECT_THAT(documents(), ElementsAre("one$|", "two$|", "three$|", "four$|"));
  input("in.txt", "one\n\ntwo\n");
  options_.text_documents = DocumentKind::file;
  run();
  EXPECT_THAT(documents(), ElementsAre("one\n\ntwo\n$|"));
}

TEST_F(PreprocessTest, KeepsParagraphsWholeOverChunks) {
  const std::string text = "alpha\nbeta\n\ngamma\n\n\ndelta delta delta delta\nepsilon\n";
  test::write_text_file(folder_ / "in.txt", text);
  for (std::size_t size = 1; size < 30; ++size) {
    ChunkReader reader({folder_ / "in.txt"},
                       {.text_kind = DocumentKind::paragraph, .chunk_size = size});
    std::vector<std::string> paragraphs;
    std::vector<std::int64_t> lines;
    while (const auto chunk = reader.next()) {
      for (const TextDocument& document : split_documents(*chunk)) {
        paragraphs.emplace_back(document.text);
        lines.push_back(document.line);
      }
    }
    EXPECT_THAT(paragraphs, ElementsAre("alpha\nbeta", "gamma", "delta delta delta delta\nepsilon"))
        << size;
    EXPECT_THAT(lines, ElementsAre(1, 4, 7)) << size;
  }
}

TEST_F(PreprocessTest, TakesGlobsInOrder) {
  test::write_text_file(folder_ / "b.jsonl", "{\"text\": \"b\"}");
  test::write_text_file(folder_ / "a.jsonl", "{\"text\": \"a\"}\n");
  options_.inputs = {folder_ / "*.jsonl"};
  run();
  EXPECT_THAT(documents(), ElementsAre("a$|", "b$|"));
}

TEST_F(PreprocessTest, LogsInMegatronsWords) {
  std::ostringstream log;
  options_.log = &log;
  options_.log_interval = 1;
  input("in.jsonl", "{\"text\": \"a\"}\n");
  run();
  EXPECT_THAT(log.str(), HasSubstr("Processed 1 documents ("));
  EXPECT_THAT(log.str(), HasSubstr(" docs/s, "));
}

TEST_F(PreprocessTest, NamesFileAndLineOfMistakesAndLeavesNothing) {
  const std::pair<std::string, std::string> cases[] = {
      {"{\"text\": \"a\"}\n{\"text\": \"b\"\n", "in.jsonl:2: not valid JSON"},
      {"{\"text\": \"a\"}\n[1]\n", "in.jsonl:2: expected a JSON object"},
      {"{\"text\": \"a\"}\n\n{\"txt\": \"a\"}\n", "in.jsonl:3: no field 'text'"},
      {"{\"text\": 5}\n", "in.jsonl:1: field 'text' must be a string"},
      {"{\"text\": null}\n", "in.jsonl:1: field 'text' must be a string"},
      {"{\"text\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}\n",
       "in.jsonl:1: field 'text' must be a string"},
      {"{\"text\": [\"a\", 1]}\n", "in.jsonl:1: field 'text' must be a string"},
      {"{\"text\": \"\\ud800\"}\n", "in.jsonl:1: half of a surrogate pair"},
      {"{\"text\": \"a\\udcb2b\"}\n", "in.jsonl:1: half of a surrogate pair"},
      {"{\"text\": \"a\"} {}\n", "in.jsonl:1: not valid JSON"},
      {"{\"text\": \"a\nb\"}\n", "in.jsonl:1: not valid JSON"},
      {"", "no tokens"},
      {"{\"text\": \"\"}\n", "no tokens"},
  };
  for (const auto& [content, message] : cases) {
    input("in.jsonl", content);
    EXPECT_THAT(error(), HasSubstr(message)) << content;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1)
        << content;
  }
}

TEST_F(PreprocessTest, RefusesDamagedCompression) {
  const std::string text =
      "{\"text\": \"" + std::string(5000, 'x') + "\"}\n{\"text\": \"yyyyyyyyyyyyyyyyyy\"}\n";
  const auto halve = [](const std::string& data) { return data.substr(0, data.size() / 2); };
  input("in.jsonl.gz", halve(gzip(text)));
  EXPECT_THAT(error(), HasSubstr("in.jsonl.gz: damaged or truncated gzip data"));
  input("in.jsonl.gz", gzip(text) + "rubbish");
  EXPECT_THAT(error(), HasSubstr("gzip data"));
  input("in.jsonl.zst", halve(zstd(text)));
  EXPECT_THAT(error(), HasSubstr("in.jsonl.zst: damaged or truncated zstd data"));
}

TEST_F(PreprocessTest, RefusesWrongOptions) {
  options_.inputs = {folder_ / "nothing*.jsonl"};
  EXPECT_THAT(error(), HasSubstr("matches no file"));
  input("in.txt", "a");
  options_.json_keys = {"a", "b"};
  EXPECT_THAT(error(), HasSubstr("in.txt: a text file has no fields"));
  options_.json_keys = {"a", "a"};
  EXPECT_THAT(error(), HasSubstr("twice"));
  options_.json_keys = {"text"};
  options_.vocab_size = 50;
  options_.append_eod = false;
  EXPECT_THAT(error(),
              HasSubstr("in.txt:1: the tokenizer gave id 97, outside its vocabulary of 50"));
  options_.append_eod = true;
  EXPECT_THAT(error(), HasSubstr("--append-eod"));
}

TEST_F(PreprocessTest, NamesTheLineThatTheTokenizerRefuses) {
  input("in.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  const Encoder only_a = [](std::string_view text) {
    if (text != "a") throw UserError({"not an a", std::string(text), "write a"});
    return bytes_of(text);
  };
  EXPECT_THAT(message_of([&] { preprocess(options_, only_a); }),
              HasSubstr("in.jsonl:2: not an a: b"));
}

TEST_F(PreprocessTest, WritesTheConversationsOfALine) {
  TokenizerConfig config;
  config.tokenizer_type = "HuggingFaceTokenizer";
  config.tokenizer_model =
      folder_.write("tok.json", R"({"model":{"type":"WordLevel","unk_token":"<unk>",)"
                                R"("vocab":{"<unk>":0,"be":1,"hi":2,"yes":3}},)"
                                R"("pre_tokenizer":{"type":"Whitespace"}})");
  options_.conversations = std::make_shared<const PromptFormat>("identity", make_tokenizer(config));
  options_.json_keys = {"messages"};
  options_.append_eod = false;
  const std::string answered =
      R"({"role":"user","content":"hi "},{"role":"assistant","content":"yes "})";
  input("in.jsonl", R"({"messages":[{"role":"system","content":"be "},)" + answered +
                        R"(,{"role":"system","content":""},)" + answered + "]}\n\n" +
                        R"({"messages":[)" + answered + "]}\n");
  run();
  EXPECT_THAT(documents("messages"), ElementsAre("\1\2\3\2\3|", "\2\3|"));
  input("in.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi \xff\"}]}");
  EXPECT_EQ(run().invalid_documents, 1);
  EXPECT_THAT(documents("messages"), ElementsAre(std::string("\2\0|", 3)));
  input("bad.jsonl", R"({"messages":[{"role":"robot","content":"hi"}]})");
  EXPECT_THAT(error(), HasSubstr("bad.jsonl:1: message 1 of a conversation has an unknown role"));
  input("in.txt", "hi\n");
  EXPECT_THAT(error(), HasSubstr("a text file has no conversations"));
}

TEST_F(PreprocessTest, ReadsNulBytesAndLinesOfManyChunks) {
  const std::string nul("a\0b", 3), large(40 << 20, 'x');
  input("in.txt", nul + "\n\n" + large + "\n\nend\n");
  run();
  std::vector<std::string> texts = documents();
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0], nul + "$|");
  EXPECT_EQ(texts[1].size(), large.size() + 2);
  EXPECT_EQ(texts[2], "end$|");
  input("in.jsonl", "{\"text\": \"a\\u0000b\"}\n{\"text\": \"" + large + "\"}\n");
  run();
  texts = documents();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0], nul + "$|");
  EXPECT_EQ(texts[1].size(), large.size() + 2);
  input("bad.jsonl", "{\"text\": \"" + nul + "\"}\n");
  EXPECT_THAT(error(), HasSubstr("bad.jsonl:1"));
}

TEST(JsonLineParser, ReadsNumbersBeyond64Bits) {
  JsonLineParser parser({"text"});
  std::string line = R"({"id": 123456789012345678901234567890, "text": ["a", "b"]})";
  const std::string_view view(line);
  std::string padded = line + std::string(TextChunk::kPadding, '\0');
  const auto& texts = parser.parse(std::string_view(padded).substr(0, view.size()), "x:1");
  EXPECT_THAT(texts[0], ElementsAre("a", "b"));
}

/// Returns the texts of the key "text"; "refused" if the line is not valid JSON.
std::vector<std::string> parsed_texts(const std::string& line) try {
  JsonLineParser parser({"text"});
  const std::string padded = line + std::string(TextChunk::kPadding, '\0');
  const auto& texts = parser.parse(std::string_view(padded).substr(0, line.size()), "x:1");
  EXPECT_FALSE(parser.had_invalid_utf8());
  return {texts[0].begin(), texts[0].end()};
} catch (const UserError& error) {
  EXPECT_THAT(error.what(), HasSubstr("x:1: not valid JSON"));
  return {"refused"};
}

// The accepted lines and their texts are those of Python's json.loads.
TEST(JsonLineParser, ReadsTheNumbersOfPython) {
  for (const std::string line :
       {R"({"text":"4","x":NaN})", R"({"x": NaN ,"text":"4"})",
        R"({"x":[Infinity,-Infinity,NaN],"text":"4"})", R"({"x":1e400,"y":-1E+999,"text":"4"})",
        R"({"x":"NaN \" :NaN","text":"4","y":NaN})", "{\"x\":\tNaN\r,\"text\":\"4\"}",
        R"({"x":0.5e-3,"y":[10,-0,12345678901234567890123],"z":Infinity,"text":"4"})"})
    EXPECT_THAT(parsed_texts(line), ElementsAre("4")) << line;
  EXPECT_THAT(parsed_texts(R"({"x":"a\\","y":NaN,"text":":NaN,1e400"})"),
              ElementsAre(":NaN,1e400"));
  EXPECT_THAT(parsed_texts(R"({"text":["a",":NaN"],"x":NaN})"), ElementsAre("a", ":NaN"));
}

TEST(JsonLineParser, RefusesNumbersThatPythonRefuses) {
  for (const std::string value :
       {"nan",          "+Infinity",      "-NaN",  "- Infinity",   "--Infinity",   "1NaN",
        "NaN1",         "NaN.5",          "1 NaN", "InfinityNaN",  "Inf",          "-",
        "1e400e5",      "\"a\"NaN",       "1-2",   "01,\"y\":NaN", "1.,\"y\":NaN", ".5,\"y\":NaN",
        "1e,\"y\":NaN", "1.5.2,\"y\":NaN"})
    EXPECT_THAT(parsed_texts(R"({"text":"4","x":)" + value + "}"), ElementsAre("refused")) << value;
  for (const std::string line :
       {R"({"text":"4",NaN:1})", R"({"text":"4","x":NaN)", R"({"text":"4" NaN})"})
    EXPECT_THAT(parsed_texts(line), ElementsAre("refused")) << line;
}

}  // namespace
}  // namespace megatron
