// Random cases of linear attention, and its recurrence with gradients in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/cpu/linear_attention.h"
#include "storage.h"

namespace megatron::kernels::recurrence {

struct Case {
  Type type = Type::f32;
  bool delta_rule = false, normalizes = false, has_beta = true, has_states = false;
  std::int64_t s = 1, b = 1, groups = 1, heads = 1, n = 1, p = 1;
  double q_scale = 1, decay = 0;
  std::vector<RowPiece> pieces;
  std::uint64_t seed = 0;

  std::int64_t width() const { return 2 * groups * n + heads * p; }
  std::int64_t rows() const { return s * b; }
  Type wide() const { return compute_type(type); }
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "seed " << c.seed << ", type " << static_cast<int>(c.type) << ", delta " << c.delta_rule
      << ", normalizes " << c.normalizes << ", beta " << c.has_beta << ", states " << c.has_states
      << ", s " << c.s << ", b " << c.b << ", groups " << c.groups << ", heads " << c.heads
      << ", n " << c.n << ", p " << c.p << ", decay " << c.decay << ", pieces";
  for (const RowPiece& piece : c.pieces)
    out << " {" << piece.column << ", " << piece.row << ", " << piece.count << ", "
        << piece.position << "}";
  return out;
}

inline Case random_case(std::uint64_t seed, Type type) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  const auto coin = [&] { return random() % 2 == 0; };
  Case c{.type = type,
         .delta_rule = coin(),
         .normalizes = coin(),
         .has_beta = up_to(8) > 1,
         .has_states = coin(),
         .s = up_to(coin() ? 20 : 200),
         .b = up_to(2),
         .groups = up_to(2),
         .n = up_to(coin() ? 8 : 40),
         .p = up_to(coin() ? 8 : 40),
         .q_scale = coin() ? 1 : 0.3,
         .pieces = {},
         .seed = seed};
  c.heads = c.groups * up_to(3);
  constexpr double kDecays[] = {0, 1e-3, 0.1, 1, 20, 1000};
  c.decay = kDecays[random() % std::size(kDecays)];
  for (std::int64_t sample = 0; sample < c.b; ++sample) {
    for (std::int64_t row = coin() ? 0 : up_to(3); row < c.s;) {
      const std::int64_t count = std::min(c.s - row, up_to(coin() ? c.s : 3));
      c.pieces.push_back({sample, row, count, coin() ? 0 : up_to(150)});
      row += count + (up_to(4) == 1 ? 1 : 0);
    }
  }
  return c;
}

inline std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// q, k and v lie side by side, as in the projection that they are slices of. Keys that are not
/// normalised have a length below 1, since the delta rule diverges with longer ones.
struct Inputs {
  explicit Inputs(const Case& c)
      : mixed(numbers(c.type, size(c.rows() * c.width()), c.seed + 1)),
        dout(numbers(c.type, size(c.rows() * c.heads * c.p), c.seed + 2)),
        g(numbers(c.wide(), size(c.rows() * c.heads), c.seed + 3)),
        beta(numbers(c.wide(), g.size(), c.seed + 4)),
        states(numbers(c.wide(), c.pieces.size() * size(c.heads * c.n * c.p), c.seed + 5)) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      g.set(i, -c.decay * std::abs(g[i]));
      beta.set(i, std::abs(beta[i]));
    }
    for (std::int64_t row = 0; row < c.rows() && !c.normalizes; ++row) {
      for (std::int64_t i = 0; i < c.groups * c.n; ++i) {
        const std::size_t at = size(row * c.width() + c.groups * c.n + i);
        mixed.set(at, mixed[at] / std::sqrt(static_cast<double>(c.n)));
      }
    }
  }
  Storage mixed, dout, g, beta, states;
};

using Row = std::vector<double>;

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// A matrix [n, p] and what the recurrence does with it.
struct State {
  State(std::int64_t keys, std::int64_t values) : n(size(keys)), p(size(values)), x(n * p) {}
  std::size_t n, p;
  Row x;
  Row of_key(const Row& k) const {  // xᵀ·k
    Row y(p);
    for (std::size_t i = 0; i < n * p; ++i) y[i % p] += x[i] * k[i / p];
    return y;
  }
  Row of_value(const Row& v) const {  // x·v
    Row y(n);
    for (std::size_t i = 0; i < n * p; ++i) y[i / p] += x[i] * v[i % p];
    return y;
  }
  void add(const Row& k, const Row& v, double factor = 1) {
    for (std::size_t i = 0; i < n * p; ++i) x[i] += factor * k[i / p] * v[i % p];
  }
  void scale(double factor) {
    for (double& value : x) value *= factor;
  }
};

/// The results in float64, and bounds of the terms that they sum, to which rounding is relative.
struct Expected {
  explicit Expected(const Case& c)
      : out(size(c.rows() * c.heads * c.p)),
        states(c.pieces.size() * size(c.heads * c.n * c.p)),
        dq(size(c.rows() * c.groups * c.n)),
        dk(dq.size()),
        dv(out.size()),
        dg(size(c.rows() * c.heads)),
        dbeta(dg.size()) {}
  Row out, states, dq, dk, dv, dg, dbeta;
  double dg_terms = 0, row_terms = 0;  ///< of dg; of dq and dk
};

class Recurrence {
 public:
  Recurrence(const Case& c, const Inputs& in) : c_(c), in_(in), result_(c) {
    for (std::size_t piece = 0; piece < c.pieces.size(); ++piece) {
      for (std::int64_t head = 0; head < c.heads; ++head) run(piece, head);
    }
  }
  const Expected& result() const { return result_; }

 private:
  struct Step {
    Row q, k, v, w, u;
    double q_factor, k_factor, decay, beta;
    State decayed, after;
  };

  Row slice(std::size_t first, std::int64_t count, const Storage& from) const {
    Row row(size(count));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = from[first + i];
    return row;
  }
  double factor_of(const Row& x, double scale) const {
    return c_.normalizes ? scale / std::sqrt(dot(x, x) + 1e-6) : scale;
  }
  std::size_t row_of(std::size_t piece, std::int64_t i) const {
    return size((c_.pieces[piece].row + i) * c_.b + c_.pieces[piece].column);
  }

  Step forward(std::size_t row, std::size_t head, const State& before) const {
    const std::size_t group = head / size(c_.heads / c_.groups), first = row * size(c_.width()),
                      at = row * size(c_.heads) + head;
    Step t{.q = slice(first + group * size(c_.n), c_.n, in_.mixed),
           .k = slice(first + (size(c_.groups) + group) * size(c_.n), c_.n, in_.mixed),
           .v = slice(first + size(2 * c_.groups * c_.n) + head * size(c_.p), c_.p, in_.mixed),
           .w = {},
           .u = {},
           .q_factor = 1,
           .k_factor = 1,
           .decay = std::exp(in_.g[at]),
           .beta = c_.has_beta ? in_.beta[at] : 1,
           .decayed = before,
           .after = before};
    t.q_factor = factor_of(t.q, c_.q_scale);
    t.k_factor = factor_of(t.k, 1);
    for (double& x : t.q) x *= t.q_factor;
    for (double& x : t.k) x *= t.k_factor;
    t.decayed.scale(t.decay);
    t.w = t.v;
    const Row read = t.decayed.of_key(t.k);
    for (std::size_t i = 0; i < t.w.size() && c_.delta_rule; ++i) t.w[i] -= read[i];
    for (const double w : t.w) t.u.push_back(t.beta * w);
    t.after = t.decayed;
    t.after.add(t.k, t.u);
    return t;
  }

  void add_row_gradient(const Row& dy, const Row& y, double factor, double scale, double* dx) {
    const double along = c_.normalizes ? dot(dy, y) / (scale * scale) : 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      dx[i] += factor * (dy[i] - along * y[i]);
      result_.row_terms = std::max(result_.row_terms, std::abs(factor * dy[i]));
    }
  }

  void run(std::size_t piece, std::int64_t head) {
    const auto h = size(head), heads = size(c_.heads), p = size(c_.p), n = size(c_.n),
               group = h / size(c_.heads / c_.groups);
    State state(c_.n, c_.p);
    const std::size_t of_state = (piece * heads + h) * n * p;
    if (c_.has_states) state.x = slice(of_state, c_.n * c_.p, in_.states);
    std::vector<Step> steps;
    for (std::int64_t i = 0; i < c_.pieces[piece].count; ++i) {
      const std::size_t row = row_of(piece, i);
      steps.push_back(forward(row, h, state));
      state = steps.back().after;
      const Row out = state.of_key(steps.back().q);
      std::copy(out.begin(), out.end(), &result_.out[(row * heads + h) * p]);
    }
    std::copy(state.x.begin(), state.x.end(), &result_.states[of_state]);
    State d(c_.n, c_.p);
    for (std::size_t i = steps.size(); i-- > 0;) {
      const Step& t = steps[i];
      const std::size_t row = row_of(piece, static_cast<std::int64_t>(i)), at = row * heads + h,
                        of_group = (row * size(c_.groups) + group) * n;
      const Row dout = slice(at * p, c_.p, in_.dout), dq = t.after.of_value(dout);
      d.add(t.q, dout);
      Row dk = d.of_value(t.u), du = d.of_key(t.k), dw = du;
      for (double& x : dw) x *= t.beta;
      result_.dbeta[at] = dot(du, t.w);
      std::copy(dw.begin(), dw.end(), &result_.dv[at * p]);
      if (c_.delta_rule) {
        const Row read = t.decayed.of_value(dw);
        for (std::size_t j = 0; j < n; ++j) dk[j] -= read[j];
        d.add(t.k, dw, -1);
      }
      result_.dg[at] = dot(d.x, t.decayed.x);
      result_.dg_terms =
          std::max({result_.dg_terms, std::abs(dot(t.q, dq)), std::abs(dot(t.k, dk))});
      add_row_gradient(dq, t.q, t.q_factor, c_.q_scale, &result_.dq[of_group]);
      add_row_gradient(dk, t.k, t.k_factor, 1, &result_.dk[of_group]);
      d.scale(t.decay);
    }
  }

  const Case& c_;
  const Inputs& in_;
  Expected result_;
};

}  // namespace megatron::kernels::recurrence
