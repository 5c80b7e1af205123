// The settings of the HTTP server of `megatron serve`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

template <class Options>
class FieldTable;

/// server_table() says what the options do.
struct ServerOptions {
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;
  std::vector<std::string> served_model_name;  ///< empty: the name of the folder
  std::vector<std::string> api_key;
  std::vector<std::string> allowed_origins;
  double max_body_mb = 64;
  double request_timeout = 0;  ///< seconds; 0: none
  std::int64_t max_queued_requests = 4096, max_logprobs = 20;
  std::int64_t max_connections = 16384;
  double grace_seconds = 10;
  std::string tool_call_parser, reasoning_parser;  ///< "": by the chat template
  std::string pooling_type = "last";
  bool disable_access_log = false;
};

const FieldTable<ServerOptions>& server_table();

}  // namespace megatron
