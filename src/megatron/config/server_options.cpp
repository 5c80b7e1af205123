#include "megatron/config/server_options.h"

#include "megatron/config/field_table.h"

namespace megatron {

const FieldTable<ServerOptions>& server_table() {
  using Options = ServerOptions;
  return field_table<Options>([](auto& t) {
    t.group("Server");
    t.field("host", &Options::host,
            "name or address to listen at: 0.0.0.0 is every IPv4 address of this host, :: every "
            "address")
        .value_name("HOST");
    t.field("port", &Options::port, "port to listen at; 0: any free one").between(0, 65535);
    t.field("served_model_name", &Options::served_model_name,
            "names by which clients may call the model; none: the name of its folder")
        .value_name("NAME");
    t.field("api_key", &Options::api_key,
            "key that clients must send, one or more times; without this flag, MEGATRON_API_KEY of "
            "the environment. None: no key is asked")
        .repeatable()
        .value_name("KEY");
    t.field("allowed_origins", &Options::allowed_origins,
            "origins of web pages that may call the server, or *; none: only its own page")
        .value_name("ORIGIN");
    t.field("max_body_mb", &Options::max_body_mb, "largest body of a request, in MiB")
        .above(0)
        .at_most(1 << 20);
    t.field("request_timeout", &Options::request_timeout,
            "seconds after which a text ends as it is; 0: never")
        .at_least(0);
    t.field("max_queued_requests", &Options::max_queued_requests,
            "texts that may wait beside those that are computed, of all prompts and choices of all "
            "requests; more are refused with status 429")
        .at_least(0);
    t.field("max_logprobs", &Options::max_logprobs,
            "most likely tokens that logprobs, top_logprobs or prompt_logprobs may ask for")
        .at_least(0);
    t.field("max_connections", &Options::max_connections,
            "open connections; more are refused. The limit of open files (ulimit -n) bounds it")
        .at_least(1);
    t.field("grace_seconds", &Options::grace_seconds,
            "seconds in which requests may end after SIGTERM or SIGINT")
        .at_least(0);
    t.field("tool_call_parser", &Options::tool_call_parser,
            "format in which the model calls tools, by vLLM's name, or none; default: the chat "
            "template tells")
        .value_name("NAME");
    t.field("reasoning_parser", &Options::reasoning_parser,
            "format in which the model writes its reasoning, by vLLM's name, or none; default: the "
            "chat template tells")
        .value_name("NAME");
    t.field("pooling_type", &Options::pooling_type,
            "hidden state that is the embedding of a text: that of its last token, or the mean of "
            "all, which is the default of encoders")
        .choices({"last", "mean"});
    t.field("disable_access_log", &Options::disable_access_log,
            "do not print a line for each request")
        .alias("disable-uvicorn-access-log")
        .alias("disable-log-requests");
  });
}

}  // namespace megatron
