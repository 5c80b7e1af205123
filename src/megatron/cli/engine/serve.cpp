// Implements `megatron serve`: serves a model over HTTP. Rank 0 listens from the start and answers
// once the model is loaded; the other ranks compute what it tells them.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "megatron/base/exit_codes.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/inference_rank.h"
#include "megatron/config/transformer_config.h"
#include "megatron/grammar/grammar.h"
#include "megatron/inference/async_engine.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/replicas.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/operation.h"
#include "megatron/server/router.h"
#include "megatron/training/run/stop_signals.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// How long clients get to read why their requests failed.
constexpr double kFailureGraceSeconds = 2;

/// The HTTP server of rank 0.
class Service {
 public:
  explicit Service(const ServerOptions& options)
      : grace_s_(options.grace_seconds),
        router_({.api_keys = options.api_key,
                 .allowed_origins = options.allowed_origins,
                 .logs_access = !options.disable_access_log}),
        server_({.host = options.host,
                 .port = options.port,
                 .max_body_bytes = static_cast<std::size_t>(options.max_body_mb * (1 << 20)),
                 .max_connections = options.max_connections},
                [this](const HttpRequest& request, HttpReply reply) {
                  router_.answer(request, std::move(reply));
                }),
        url_("http://" +
             (options.host.find(':') == std::string::npos ? options.host
                                                          : "[" + options.host + "]") +
             ":" + std::to_string(server_.port())) {
    add_operation_routes(router_, MEGATRON_VERSION, [this] {
      const RequestServer* engine = engine_;
      return engine ? engine->load() : EngineLoad{};
    });
  }

  HttpRouter& router() { return router_; }

  /// Serves until a signal, and returns the exit code. Throws what made the engine fail, after its
  /// requests have been told. No handler runs afterwards.
  int run(RequestServer& engine, const StopSignalHandler& signals) {
    const Stop stop{*this};
    engine_ = &engine;
    router_.set_state(HttpRouter::State::ready);
    std::cout << "listening on " << url_ << std::endl;
    while (!signals.received() && !engine.wait_for(milliseconds(100))) continue;
    if (signals.received()) {
      router_.set_state(HttpRouter::State::draining);
      server_.stop_listening();
      std::cerr << "stopping: " << server_.num_open() << " requests are open" << std::endl;
      drain(grace_s_, [&] { return engine.wait_for(milliseconds(0)); });
    }
    if (!engine.wait_for(milliseconds(0))) {
      engine.stop();  // requests that are left end with an error
      drain(kFailureGraceSeconds, [] { return false; });
      return exit_code_after(*signals.received());
    }
    try {
      engine.wait();
    } catch (const std::exception& error) {
      router_.set_state(HttpRouter::State::failed, error.what());
      drain(kFailureGraceSeconds, [] { return false; });
      throw;
    }
    return 1;
  }

 private:
  struct Stop {
    Service& service;
    ~Stop() {
      service.server_.stop();
      service.engine_ = nullptr;
    }
  };

  /// Waits until all requests are answered, at most `limit_s`, or until `ends`.
  template <class Ends>
  void drain(double limit_s, const Ends& ends) const {
    const double end_s = monotonic_seconds() + limit_s;
    while (server_.num_open() > 0 && monotonic_seconds() < end_s && !ends())
      std::this_thread::sleep_for(milliseconds(20));
  }

  const double grace_s_;
  std::atomic<RequestServer*> engine_ = nullptr;
  HttpRouter router_;
  HttpServer server_;
  const std::string url_;
};

/// Returns the names by which clients call the model.
std::vector<std::string> model_names(const ServeOptions& options) {
  if (!options.server.served_model_name.empty()) return options.server.served_model_name;
  const std::filesystem::path folder =
      std::filesystem::absolute(options.load + "/").lexically_normal().parent_path();
  return {folder.filename().string()};
}

std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t bytes = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    bytes = std::max(bytes, tokenizer.token(id).size());
  return bytes;
}

int serve_as(World& world, std::span<const std::string> args, const ModelFamilies& families) {
  const LaunchEnvironment& environment = world.environment();
  const ServeOptions options = read_serve_options(args, environment.world_size);
  std::optional<Service> service;  // on rank 0; it outlives the engine, but its handlers do not
  if (environment.rank == 0) service.emplace(options.server);
  ServeOptions compared = options;
  compared.server.api_key.clear();  // no other rank needs it
  InferenceRank rank(world, options, flags_of(serve_table().set(), &compared), families);
  const LoadedTokenizer tokenizer = rank.load_tokenizer(options.tokenizer, options.parsed);
  const std::unique_ptr<const ServedChat> chat =
      open_served_chat(chat_files(tokenizer.config), *tokenizer.tokenizer,
                       options.server.tool_call_parser, options.server.reasoning_parser);
  EngineOptions engine_options = rank.engine_options(options, options.speculative);
  engine_options.tokenizer = tokenizer.tokenizer.get();
  engine_options.decoder_start = tokenizer.decoder_start;
  engine_options.grammars = std::make_shared<GrammarCache>(*tokenizer.tokenizer);

  std::unique_ptr<const ServedModel> model;  // outlives the engine, whose last news may read it
  const auto serve = [&](RequestServer& engine, const StopSignalHandler& signals) {
    HttpRouter& router = service->router();
    const SchedulerOptions& scheduler = engine_options.scheduler;
    const std::int64_t max_texts =
        scheduler.max_running * rank.num_replicas() + options.server.max_queued_requests;
    router.set_max_open(max_texts);
    const TransformerConfig& config = rank.model().config();
    const std::vector<std::string> names = model_names(options);
    const std::int64_t max_model_len = rank.max_model_len(options, engine_options);
    model = std::make_unique<const ServedModel>(ServedModel{
        .name = names.front(),
        .tokenizer = tokenizer,
        .chat = chat.get(),
        .engine = &engine,
        .grammars = engine_options.grammars,
        .max_model_len = max_model_len,
        .max_prompt_bytes =
            static_cast<std::size_t>(max_model_len) * longest_token(*tokenizer.tokenizer),
        .vocab_size = config.vocab_size,
        .defaults = tokenizer.defaults,
        .request_timeout_s = options.server.request_timeout,
        .aliases = names,
        .embedding_size = config.hidden_size,
        .pooling =
            options.server.pooling_type == "mean" ||
                    (!options.parsed.is_set("pooling_type") && !rank.model().model().is_causal())
                ? Pooling::mean
                : Pooling::last,
        .max_texts = max_texts,
        .max_logprobs = options.server.max_logprobs});
    add_model_routes(router, names, model->max_model_len);
    add_api_routes(router, *model);
    return service->run(engine, signals);
  };
  const StopSignalHandler signals("SIGTERM", /*prints=*/false);
  std::string code;
  {
    AsyncEngine engine(rank.model(), engine_options, rank.serving_ranks());
    // This thread computes no more, and the engine's has OpenMP threads of its own. Together they
    // are more than the CPUs, and libgomp then hardly lets any of them spin between operations.
    omp_pause_resource_all(omp_pause_soft);
    if (!engine.is_leader()) {
      engine.wait();
    } else if (rank.num_replicas() == 1) {
      code = std::to_string(serve(engine, signals));
    } else {
      ReplicaSet replicas(engine, rank.replica_leaders(), engine_options.scheduler);
      if (replicas.is_leader())
        code = std::to_string(serve(replicas, signals));
      else
        replicas.wait();
    }
  }
  rank.note_speculation();
  return std::stoi(rank.broadcast({code}).front());
}

}  // namespace

int run_serve(std::span<const std::string> args, const ModelFamilies& families) {
  return run_rank("serve", [&](World& world) { return serve_as(world, args, families); });
}

}  // namespace megatron
