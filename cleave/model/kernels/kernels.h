#pragma once

#include <cstdint>

#include "cleave/model/kernels/bf16.h"

// Loops over numbers in memory that libtorch has only slower: compiled for
// several generations of processors, the best one is taken when the program
// starts. All arithmetic is in fp32, whatever type is in memory. A result does
// not depend on how many calls a range is divided into.
namespace cleave::kernels {

// y = GELU(x), in its tanh form.
void gelu(const float* x, float* y, std::int64_t count);
void gelu(const Bf16* x, Bf16* y, std::int64_t count);

// dx = dy * GELU'(x).
void gelu_backward(const float* x,
                   const float* dy,
                   float* dx,
                   std::int64_t count);
void gelu_backward(const Bf16* x, const Bf16* dy, Bf16* dx, std::int64_t count);

// One row of scores. The first `seen` of them count, times `scale`.
struct ScoreRow {
  std::int64_t seen = 0;
  std::int64_t length = 0;
  float scale = 1;
};

// Writes their softmax over the scores, zero where they do not count. Returns
// the logarithm of the sum of exponentials.
float softmax(const ScoreRow& row, float* scores);
float softmax(const ScoreRow& row, Bf16* scores);

// The probabilities again, from the scores and that logarithm, and over
// `gradient`, which is that of the probabilities, that of the scores.
void softmax_backward(const ScoreRow& row,
                      float log_sum,
                      float* scores,
                      float* gradient);
void softmax_backward(const ScoreRow& row,
                      float log_sum,
                      Bf16* scores,
                      Bf16* gradient);

float largest(const float* values, std::int64_t count);
float largest(const Bf16* values, std::int64_t count);

// Sums are kept in so many lanes: their order does not depend on the width of
// vectors, nor on where a row is cut into parts of a multiple of this.
inline constexpr int kLanes = 16;
struct LaneSums {
  float of[kLanes] = {};
};

// out = exp(score - largest) of a part of a row; `out` may be the scores.
// Returns their sum with what `sums` has of the parts before; only the last
// part need not be a multiple of kLanes.
float exponentials(const float* scores,
                   float* out,
                   std::int64_t count,
                   float largest,
                   LaneSums& sums);
float exponentials(const Bf16* scores,
                   Bf16* out,
                   std::int64_t count,
                   float largest,
                   LaneSums& sums);

// values *= factor.
void scale(float* values, std::int64_t count, float factor);
void scale(Bf16* values, std::int64_t count, float factor);

// y = max(x, 0); no number stays none. `y` may be `x`.
void relu(const float* x, float* y, std::int64_t count);

// dx = dy where y > 0, else zero.
void relu_backward(const float* y,
                   const float* dy,
                   float* dx,
                   std::int64_t count);

// sums = the sum of the rows, which lie behind each other, `columns` long each.
// In libtorch's order, so with its bits: sixteen rows, then sixteen of those
// sums, and so on. REQUIRES: columns is a multiple of kSumColumns, others it
// sums in another way.
inline constexpr std::int64_t kSumColumns = 64;
void sum_rows(const float* values,
              std::int64_t rows,
              std::int64_t columns,
              float* sums);

// `to` = the matrix with its columns as rows. `stride`: from row to row.
void transpose(const float* matrix,
               std::int64_t stride,
               std::int64_t rows,
               std::int64_t columns,
               float* to);

// sums += values.
void add(float* sums, const Bf16* values, std::int64_t count);

}  // namespace cleave::kernels
