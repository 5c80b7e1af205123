// The description at /openapi.json against the routes and the readers of bodies.
#include "megatron/server/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/sampling_params.h"
#include "megatron/server/operation.h"
#include "server/served_apis.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

class OpenApi : public ServedApis {
 protected:
  OpenApi() { serve(engine_); }

  const Json& schema(const Json& reference) const {
    return all_.at(Json::json_pointer(reference.at("$ref").get<std::string>().substr(1)));
  }
  /// Calls use(path, schema of the body) for each body.
  template <class Use>
  void for_each_body(const Use& use) const {
    for (const auto& [path, methods] : all_["paths"].items())
      if (methods.contains("post"))
        use(path, schema(methods["post"]["requestBody"]["content"]["application/json"]["schema"]));
  }

  EmbeddingEngine engine_;
  const Json all_ = Json::parse(openapi_json());
};

TEST_F(OpenApi, DescribesEveryRouteAndNoOther) {
  add_operation_routes(router_, "1", [] { return EngineLoad{}; });
  add_model_routes(router_, {"small"}, 64);
  std::set<std::pair<std::string, std::string>> described;
  for (const auto& [path, methods] : all_["paths"].items())
    for (const auto& [name, unused] : methods.items()) {
      std::string method = name, route = path;
      for (char& c : method) c = static_cast<char>(std::toupper(c));
      if (const auto at = route.find('{'); at != std::string::npos) route.replace(at, 6, "*");
      described.emplace(method, route);
    }
  const auto routes = router_.routes();
  EXPECT_EQ(described,
            (std::set<std::pair<std::string, std::string>>(routes.begin(), routes.end())));
}

TEST_F(OpenApi, HasWhatItRefersTo) {
  std::vector<const Json*> open{&all_};
  std::set<std::string> names;
  while (!open.empty()) {
    const Json& json = *open.back();
    open.pop_back();
    if (!json.is_structured()) continue;  // a loop over another value never ends
    for (const Json& part : json) open.push_back(&part);
    if (!json.is_object() || !json.contains("$ref")) continue;
    names.insert(json["$ref"].get<std::string>().substr(1));
  }
  EXPECT_GT(names.size(), 40u);
  for (const std::string& name : names)
    EXPECT_TRUE(all_.contains(Json::json_pointer(name))) << name;
}

// Members of a wrong type are refused as such, and unknown ones by name.
TEST_F(OpenApi, NamesTheMembersThatAreRead) {
  int num_closed = 0;
  for_each_body([&](const std::string& path, const Json& body) {
    if (body.value("additionalProperties", true)) return;
    ++num_closed;
    Json valid = Json::object();
    for (const Json& name : body.value("required", Json::array())) {
      const Json& type = body["properties"][name.get<std::string>()];
      valid[name] = type.value("type", "") == "array" ? Json::array({"3"}) : Json("3");
    }
    for (const auto& [name, unused] : body["properties"].items()) {
      Json asked = valid;
      asked[name] = Json::object();
      EXPECT_THAT(ask(path, asked.dump()).body, Not(HasSubstr("is not known here")))
          << path << " " << name;
    }
    valid["nonsense"] = 1;
    EXPECT_THAT(ask(path, valid.dump()).body, HasSubstr("'nonsense': is not known here")) << path;
  });
  EXPECT_EQ(num_closed, 7);
}

TEST_F(OpenApi, HasTheSettingsOfSampling) {
  const Json& members = all_["components"]["schemas"]["CompletionRequest"]["properties"];
  const std::set<std::string> renamed{"max_new_tokens", "min_new_tokens", "return_log_probs"};
  for (const Field& field : sampling_table().set().fields)
    EXPECT_NE(members.contains(field.name), renamed.contains(field.name)) << field.name;
}

}  // namespace
}  // namespace megatron
