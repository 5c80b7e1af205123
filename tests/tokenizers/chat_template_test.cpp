// Compares templates with Jinja2 itself (fixtures/chat_snippets.jsonl by make_chat_fixtures.py),
// and checks messages and limits.
#include "megatron/tokenizers/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "support/message_of.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::fixture;
using ::testing::HasSubstr;

/// Renders a template whose variables are the members of a JSON object.
std::string render(const std::string& source, const std::string& variables = "{}",
                   const chat::RenderLimits& limits = {}) {
  ChatInput input;
  const chat::Value members = chat::read_json_value(variables, "variables");
  for (const auto& [key, value] : members.as_dict().entries())
    input.variables.emplace_back(key.as_text(), value);
  return ChatTemplate(source, "t.jinja").render(input, 0, limits);
}

TEST(ChatTemplate, RendersAsJinja2) {
  std::istringstream lines(read_file(fixture("chat_snippets.jsonl")));
  std::string line;
  std::getline(lines, line);
  const std::string variables = OrderedJson::parse(line).at("variables").dump();
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    const Json expected = Json::parse(line);
    const auto source = expected.at("template").get<std::string>();
    if (expected.contains("error")) {
      EXPECT_THROW(render(source, variables), UserError) << source;
      continue;
    }
    try {
      EXPECT_EQ(render(source, variables), expected.at("text").get<std::string>()) << source;
    } catch (const UserError& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
  }
  EXPECT_GT(count, 150);
}

std::string message(const std::string& source, const chat::RenderLimits& limits = {}) {
  return message_of([&] { render(source, R"({"l": [1]})", limits); });
}

TEST(ChatTemplate, MessagesNameTheLine) {
  EXPECT_EQ(message("a\n{{ raise_exception('roles must alternate') }}"),
            "t.jinja, line 2: roles must alternate");
  EXPECT_EQ(message("a\n\n{% if x %}"), "t.jinja, line 3: the block 'if' does not end");
  EXPECT_EQ(message("{{ 1\n2 }}"), "t.jinja, line 2: expected '}}', got '2'");
  EXPECT_EQ(message("{% for x in l %}\n{{ x.y.z }}\n{% endfor %}"),
            "t.jinja, line 2: 'int object' has no attribute 'y'");
  EXPECT_EQ(message("{% macro m(x) %}\n{{ x + 1 }}\n{% endmacro %}\n{{ m('a') }}"),
            "t.jinja, line 2: unsupported operand type(s) for +: 'str' and 'int'");
  EXPECT_EQ(message("{% include 'x' %}"), "t.jinja, line 1: unknown tag 'include'");
  EXPECT_EQ(message("{{ l.append(1) }}"),
            "t.jinja, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(message("\xff"), "t.jinja is not valid UTF-8");
}

// Of what Jinja and Python have, templates may use what published ones use.
TEST(ChatTemplate, RefusesOtherBuiltInsByName) {
  EXPECT_EQ(message("{{ l | batch(2) }}"), "t.jinja, line 1: the filter 'batch' is not supported");
  EXPECT_EQ(message("{{ l | map('center') | list }}"),
            "t.jinja, line 1: the filter 'center' is not supported");
  EXPECT_EQ(message("{{ 1 is escaped }}"), "t.jinja, line 1: the test 'escaped' is not supported");
  EXPECT_EQ(message("a\n{{ 'x'.center(9) }}"),
            "t.jinja, line 2: the method 'center' of str is not supported");
  EXPECT_EQ(message("{{ '{}'.format(1) }}"),
            "t.jinja, line 1: the method 'format' of str is not supported");
  EXPECT_EQ(message("{{ cycler('a') }}"), "t.jinja, line 1: 'cycler' is undefined");
  EXPECT_EQ(render("{{ 'x'.center is defined }} {{ 'x'.center }}"), "False ");
}

TEST(ChatTemplate, HostileTemplatesEnd) {
  const chat::RenderLimits limits{.work = 100'000, .value_bytes = 1 << 16};
  const auto endless = HasSubstr("does not end within its limit of work");
  const auto large = HasSubstr("a value is larger than");
  EXPECT_THAT(message("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                      "{% endfor %}",
                      limits),
              endless);
  EXPECT_THAT(message("{{ 'a' * 1000000000000 }}", limits), large);
  EXPECT_THAT(message("{{ [0] * 1000000000000 }}", limits), large);
  EXPECT_THAT(message("{{ '%1000000d' % 1 }}", limits), large);
  EXPECT_THAT(message("{{ '%-1000000s' % 1 }}", limits), large);
  EXPECT_THAT(message("{% set n = namespace(t='ab') %}{% for i in range(99) %}"
                      "{% set n.t = n.t + n.t %}{% endfor %}",
                      limits),
              large);
  EXPECT_THAT(message("{% set n = namespace(t=['ab']) %}{% for i in range(40) %}"
                      "{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.t | tojson }}",
                      limits),
              large);
  EXPECT_THAT(message("{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
                      "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
                      "{{ n.a == n.b }}",
                      limits),
              endless);
  EXPECT_THAT(message("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("calls itself too deep"));
  EXPECT_THAT(message("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("calls itself too deep"));
  EXPECT_THAT(message("{% set n = namespace(t=1) %}{% for i in range(999) %}"
                      "{% set n.t = [n.t] %}{% endfor %}"),
              HasSubstr("values are nested deeper"));
}

TEST(ChatTemplate, DeepSourcesAreRefused) {
  const auto deep = HasSubstr("the template is nested deeper than");
  const auto repeat = [](const std::string& part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  EXPECT_THAT(message("{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}"), deep);
  EXPECT_THAT(message("{{ " + repeat("not ", 100'000) + "1 }}"), deep);
  EXPECT_THAT(message("{{ " + repeat("- ", 100'000) + "1 }}"), deep);
  EXPECT_THAT(message("{{ 1" + repeat(" + 1", 100'000) + " }}"), deep);
  EXPECT_THAT(message("{{ l" + repeat(" | list", 100'000) + " }}"), deep);
  EXPECT_THAT(message("{{ 1" + repeat(" if 1 else 1", 100'000) + " }}"), deep);
  EXPECT_THAT(message(repeat("{% if 1 %}", 100'000)), deep);
  EXPECT_THAT(message("{{ f(*(1" + repeat(" + 1", 100'000) + ")) }}"), deep);
}

TEST(ChatTemplate, ObjectsThatReferToThemselvesAreFreed) {  // under a leak checker
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{% macro m() %}{% endmacro %}"
                   "{% set k = m %}{% set n.m = m %}{% for x in [1] %}{% set n.l = loop %}"
                   "{% endfor %}{{ n.n.n is defined }}"),
            "True");
}

TEST(ChatTemplate, TellsTheTime) {
  EXPECT_EQ(render("{{ strftime_now('%Y') }}").size(), 4u);
  EXPECT_THAT(message("{{ strftime_now('%Y' * 5000) }}"), HasSubstr("the date is too long"));
}

TEST(ChatTemplate, ReadsJsonAsPythonDoes) {
  EXPECT_EQ(render("{{ d | tojson }} {{ d.b }} {{ d.f }}",
                   R"({"d": {"b": 1, "a": "\u00e9", "b": 2, "f": 1e2}})"),
            R"({"b": 2, "a": "é", "f": 100.0} 2 100.0)");
  const auto refusal = [](const std::string& json) {
    return message_of([&] { chat::read_json_value(json, "in.json"); });
  };
  EXPECT_EQ(refusal("[1, 99999999999999999999]"),
            "in.json: an integer is beyond 64 bits: 99999999999999999999");
  EXPECT_EQ(refusal("[1,"), "in.json: not valid JSON at byte 4");
  EXPECT_THAT(refusal(R"(["\udcb2"])"), HasSubstr("half of a surrogate pair"));
  EXPECT_EQ(refusal("[1e999]"), "in.json: a number is out of range");
  EXPECT_THAT(refusal(std::string(200, '[')), HasSubstr("nested deeper than"));
}

}  // namespace
}  // namespace megatron
