#include "megatron/config/bench_serve_options.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/config/field_table.h"

namespace megatron {

const FieldTable<BenchServeOptions>& bench_serve_table() {
  using Options = BenchServeOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Sends requests to a server that speaks OpenAI's API and measures how fast it answers: "
        "megatron bench-serve --url http://127.0.0.1:8000 --request-rate 4 --num-prompts 100  "
        "Prompts are random and answers streamed. The time to the first token is how long a user "
        "waits, the inter-token latency how fast the text then appears. --profile sweep shows at "
        "which rate they rise. The same seed sends the same requests at the same times.");
    t.group("Server");
    t.field("url", &Options::url, "address of the server, with or without /v1")
        .value_name("URL")
        .alias("target");
    t.field("model", &Options::model, "model to ask for; default: the first one of /v1/models");
    t.field("api_key", &Options::api_key, "bearer token; default: $OPENAI_API_KEY");
    t.field("endpoint", &Options::endpoint, "/v1/completions or /v1/chat/completions")
        .choices({"completions", "chat"});
    t.field("timeout_seconds", &Options::timeout_seconds,
            "a server that sends nothing for so long fails the request")
        .above(0);
    t.group("Load");
    t.field("profile", &Options::profile,
            "shape of the load, as in GuideLLM; synchronous: one request after the other; "
            "concurrent: --request-rate requests at any time; throughput: all at once; constant: "
            "--request-rate a second at equal distances; poisson: at random ones; sweep: "
            "synchronous, throughput and constant rates between them, --request-rate loads "
            "together; default: throughput, or poisson where a rate is given")
        .choices({"synchronous", "concurrent", "throughput", "constant", "poisson", "sweep"})
        .alias("rate-type");
    t.field("request_rate", &Options::request_rate,
            "requests per second, or inf; several: one load each; with concurrent: how many at "
            "any time; with sweep: how many loads, 10 by default")
        .value_name("X")
        .alias("rate");
    t.field(
         "burstiness", &Options::burstiness,
         "shape of the gamma distribution of the gaps between requests of poisson: 1 is Poisson, "
         "less comes in bursts, more is regular")
        .above(0);
    t.field("max_concurrency", &Options::max_concurrency,
            "requests in flight at most; further ones start late")
        .between(1, 1000);
    t.field("num_prompts", &Options::num_prompts,
            "requests of each load; default: 100, or no limit with --max-seconds")
        .at_least(1)
        .alias("max-requests");
    t.field("max_seconds", &Options::max_seconds,
            "no request of a load starts later; those in flight are waited for")
        .above(0);
    t.field("seed", &Options::seed, "decides lengths, prompts and times")
        .at_least(0)
        .alias("random-seed");
    t.group("Requests");
    t.field("data", &Options::data,
            "lengths of prompts and answers, as in GuideLLM: prompt_tokens and output_tokens are "
            "means; with _stdev they are normal, with _min and _max bounded, without _stdev then "
            "uniform; or a file of JSON lines with \"prompt\" (a text or ids) or with "
            "\"messages\" for chats, and with \"output_tokens\"")
        .value_name("LENGTHS|FILE");
    t.field("prefix_tokens", &Options::prefix_tokens,
            "tokens more that a prompt shares with others, as a system prompt is shared")
        .at_least(0);
    t.field("num_prefixes", &Options::num_prefixes, "number of different prefixes").at_least(1);
    t.field("ignore_eos", &Options::ignore_eos,
            "ask for answers of the whole length; servers that refuse the member \"ignore_eos\" "
            "need --no-ignore-eos");
    t.field("extra_body", &Options::extra_body,
            "members to add to each request, such as '{\"temperature\": 0}'")
        .value_name("JSON");
    t.group("Output");
    t.field("json", &Options::json, "print one JSON object instead of tables");
    t.field("output_plot", &Options::output_plot,
            "draw latencies as SVG: over the load if there are several, else their distribution")
        .value_name("FILE");
  });
}

BenchServeOptions read_bench_serve_options(std::span<const std::string> args) {
  BenchServeOptions options;
  parse_command_line(bench_serve_table(), args, options, "bench-serve");
  for (const std::string& text : options.request_rate)
    options.rates.push_back(float_value(text).value_or(-1));
  std::string& profile = options.profile;
  const std::vector<double>& rates = options.rates;
  const auto all = [&](auto holds) { return std::ranges::all_of(rates, holds); };
  const auto is_infinite = [](double rate) { return std::isinf(rate); };
  const auto need = [&](bool holds, const char* what, const char* fix) {
    if (!holds) throw UserError({"--request-rate with --profile " + profile, what, fix});
  };
  if (profile.empty()) profile = all(is_infinite) ? "throughput" : "poisson";
  need(all([](double rate) { return rate > 0; }), "must be numbers above 0, or inf", "");
  if (profile == "synchronous" || profile == "throughput") {
    need(all(is_infinite), "has no meaning", "leave it out, or use --profile poisson");
  } else if (profile == "sweep" || profile == "concurrent") {
    const double least = profile == "sweep" ? 3 : 1;
    need(
        all([&](double rate) { return rate == std::floor(rate) && rate >= least && rate <= 1000; }),
        "must be whole numbers up to 1000", "with sweep at least 3");
    need(profile == "sweep" ? rates.size() <= 1 : !rates.empty(),
         "is one number of loads of a sweep, or how many requests are in flight", "");
  } else {
    need(!rates.empty(), "must be requests per second", "give for example --request-rate 4");
  }
  if (!options.num_prompts && !options.max_seconds) options.num_prompts = 100;
  return options;
}

}  // namespace megatron
