#pragma once

// Attention written out in f64, all scores stored: what the kernels have to agree with.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/random.h"
#include "ops/kernels/attention.h"

namespace pando {

/// Dense values in f64: q, out, dout, dq [B, Tq, Hq, D]; k, v, dk, dv [B, Tk, Hkv, D]; lse
/// [B, Hq, Tq].
struct NaiveAttention {
  AttentionShape shape;
  std::vector<double> q, k, v, dout;
  std::vector<double> out, lse;
  std::vector<double> dq, dk, dv;
  /// As the gradients, with every term of every sum taken absolutely: rounding errors are relative
  /// to these.
  std::vector<double> dq_terms, dk_terms, dv_terms;
  double score_terms = 0;  ///< the largest sum of absolute terms of a score

  explicit NaiveAttention(const AttentionShape& s) : shape(s) {}

  int64_t QueryAt(int64_t b, int64_t i, int64_t h) const {
    return ((b * shape.query_length + i) * shape.query_heads + h) * shape.head_dim;
  }
  int64_t KeyAt(int64_t b, int64_t j, int64_t h) const {
    const int64_t kv = h / (shape.query_heads / shape.kv_heads);
    return ((b * shape.key_length + j) * shape.kv_heads + kv) * shape.head_dim;
  }
  int64_t LseAt(int64_t b, int64_t i, int64_t h) const {
    return (b * shape.query_heads + h) * shape.query_length + i;
  }

  /// Keys that query i of sample b sees: a prefix.
  int64_t KeysSeen(int64_t b, int64_t i) const {
    const int64_t position = i + shape.key_length - shape.query_length;
    const int64_t keys = shape.lengths != nullptr ? shape.lengths[b] : shape.key_length;
    if (position >= keys) return 0;
    return shape.causal ? std::max<int64_t>(0, position + 1) : keys;
  }

  /// Dropout's factor of probability (i, j), 0 or 1 / (1 - p).
  double Factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (shape.dropout == 0) return 1;
    const int64_t element = (h * shape.query_length + i) * shape.key_length + j;
    const uint32_t bits = RandomBits(shape.random, static_cast<uint64_t>(shape.sample_ids[b]),
                                     static_cast<uint64_t>(element));
    return bits < DropThreshold(shape.dropout) ? 0 : 1 / (1 - shape.dropout);
  }

  double DotOf(const double* x, const double* y) const {
    double sum = 0;
    for (int64_t e = 0; e < shape.head_dim; ++e) sum += x[e] * y[e];
    return sum;
  }

  double AbsDotOf(const double* x, const double* y) const {
    double sum = 0;
    for (int64_t e = 0; e < shape.head_dim; ++e) sum += std::fabs(x[e] * y[e]);
    return sum;
  }

  /// Probabilities of one row, before dropout, and its log-sum-exp.
  std::vector<double> Row(int64_t b, int64_t h, int64_t i, double* row_lse) {
    std::vector<double> p(KeysSeen(b, i));
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < KeysSeen(b, i); ++j) {
      score_terms =
          std::max(score_terms, shape.scale * AbsDotOf(&q[QueryAt(b, i, h)], &k[KeyAt(b, j, h)]));
      p[j] = shape.scale * DotOf(&q[QueryAt(b, i, h)], &k[KeyAt(b, j, h)]);
      max = std::max(max, p[j]);
    }
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - max);
    for (double& x : p) x /= sum;
    *row_lse = p.empty() ? std::numeric_limits<double>::infinity() : max + std::log(sum);
    return p;
  }

  template <typename F>
  void ForEachRow(const F& f) const {
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.query_heads; ++h) {
        for (int64_t i = 0; i < shape.query_length; ++i) f(b, h, i);
      }
    }
  }

  /// Fills out and lse.
  void Forward() {
    out.assign(q.size(), 0);
    lse.assign(shape.batch * shape.query_heads * shape.query_length, 0);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      const std::vector<double> p = Row(b, h, i, &lse[LseAt(b, i, h)]);
      for (int64_t j = 0; j < KeysSeen(b, i); ++j) {
        const double weight = p[j] * Factor(b, h, i, j);
        for (int64_t e = 0; e < shape.head_dim; ++e) {
          out[QueryAt(b, i, h) + e] += weight * v[KeyAt(b, j, h) + e];
        }
      }
    });
  }

  /// Fills dq, dk and dv by the chain rule through `out` as it stands: its rounding to the dtype
  /// under test is part of backward's input.
  void Backward() {
    for (auto* x : {&dq, &dq_terms}) x->assign(q.size(), 0);
    for (auto* x : {&dk, &dv, &dk_terms, &dv_terms}) x->assign(k.size(), 0);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      double unused;
      const std::vector<double> p = Row(b, h, i, &unused);
      const int64_t at = QueryAt(b, i, h);
      const double delta = DotOf(&dout[at], &out[at]);
      const double delta_terms = AbsDotOf(&dout[at], &out[at]);
      for (int64_t j = 0; j < KeysSeen(b, i); ++j) {
        const int64_t key = KeyAt(b, j, h);
        const double pf = p[j] * Factor(b, h, i, j);
        const double ds = shape.scale * (pf * DotOf(&dout[at], &v[key]) - p[j] * delta);
        const double ds_terms =
            shape.scale * (pf * AbsDotOf(&dout[at], &v[key]) + p[j] * delta_terms);
        for (int64_t e = 0; e < shape.head_dim; ++e) {
          dq[at + e] += ds * k[key + e];
          dk[key + e] += ds * q[at + e];
          dv[key + e] += pf * dout[at + e];
          dq_terms[at + e] += ds_terms * std::fabs(k[key + e]);
          dk_terms[key + e] += ds_terms * std::fabs(q[at + e]);
          dv_terms[key + e] += pf * std::fabs(dout[at + e]);
        }
      }
    });
  }
};

}  // namespace pando
