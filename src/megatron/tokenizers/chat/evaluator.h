// Runs the syntax tree of a template.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/syntax.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// The variables of a block, and the block around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

class NameSpace;

/// Renders one template once.
class Evaluator {
 public:
  /// `now` is the time that strftime_now() tells.
  Evaluator(const RenderLimits& limits, std::time_t now) : meter_(limits), now_(now) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  /// Returns the text of a template whose variables are `variables`. Throws a TemplateError with
  /// the line where it failed.
  std::string render(const Nodes& body, std::vector<std::pair<std::string, Value>> variables);

  // For built-in functions, filters, tests and macros.
  Meter& meter() { return meter_; }
  std::time_t now() const { return now_; }
  Value apply_filter(const std::string& name, const Value& input, Arguments arguments);
  bool apply_test(const std::string& name, const Value& input, Arguments arguments);
  /// Keeps an object whose values are dropped at the end, because it may refer to itself.
  void keep(std::shared_ptr<NameSpace> name_space) {
    name_spaces_.push_back(std::move(name_space));
  }
  Value call_macro(const Node& macro, const ScopePtr& scope, Arguments arguments);
  /// Renders a loop over `iterable`; `depth` counts the recursive loops around it.
  void run_loop(const Node& loop, const Value& iterable, const ScopePtr& scope, int depth);
  std::string capture_loop(const Node& loop, const Value& iterable, const ScopePtr& scope,
                           int depth);
  bool is_true_in(const Node& condition, const Node& target, const Value& item,
                  const ScopePtr& scope);

 private:
  enum class Flow { normal, leave_loop, next_iteration };

  /// Counts the nested calls of the evaluator while it lives, and the work.
  class Level {
   public:
    Level(Evaluator& evaluator, int line);
    ~Level() { --evaluator_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Evaluator& evaluator_;
  };

  Flow run(const Nodes& body, const ScopePtr& scope);
  Flow run_one(const Node& node, const ScopePtr& scope);
  Flow run_if(const Node& node, const ScopePtr& scope);
  void run_set_block(const Node& node, const ScopePtr& scope);
  void run_with(const Node& node, const ScopePtr& scope);
  void run_call_block(const Node& node, const ScopePtr& scope);
  void print(const Value& value);
  void assign(const Node& target, Value value, const ScopePtr& scope);
  std::string capture(const Nodes& body, const ScopePtr& scope);
  Value make_macro(const Node& node, const ScopePtr& scope);
  void bind_macro_arguments(const Node& macro, const ScopePtr& inner, Arguments arguments);

  Value evaluate(const Node& node, const ScopePtr& scope);
  Value evaluate_optional(const NodePtr& node, const ScopePtr& scope);
  Value evaluate_name(const Node& node, const ScopePtr& scope);
  Value evaluate_items(const Node& node, const ScopePtr& scope);
  Value evaluate_dict(const Node& node, const ScopePtr& scope);
  Value evaluate_unary(const Node& node, const ScopePtr& scope);
  Value evaluate_binary(const Node& node, const ScopePtr& scope);
  Value evaluate_comparison(const Node& node, const ScopePtr& scope);
  Value evaluate_concat(const Node& node, const ScopePtr& scope);
  Value evaluate_condition(const Node& node, const ScopePtr& scope);
  Value evaluate_call(const Node& node, const ScopePtr& scope, const Value* caller = nullptr);
  Value evaluate_filter(const Node& node, const ScopePtr& scope);
  Value evaluate_block_filter(const Node& filter, Value input, const ScopePtr& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope);

  Meter meter_;
  std::time_t now_;
  std::string out_;
  int line_ = 0;
  int level_ = 0;
  const Value* block_input_ = nullptr;  ///< what the filters of a block read
  std::vector<std::shared_ptr<NameSpace>> name_spaces_;
  std::vector<ScopePtr> macro_scopes_;
};

}  // namespace megatron::chat
