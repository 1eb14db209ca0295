#include "cleave/model/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cleave/model/kernels/clones.h"

namespace cleave::kernels {
namespace {

// exp(x) to about one unit in the last place, for x up to 80; below -87 zero.
CLEAVE_INLINE float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23
  const float clamped = std::min(std::max(x, -87.0F), 80.0F);
  const float shifted = clamped * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::int32_t exponent =
      (std::bit_cast<std::int32_t>(shifted) - 0x4B400000 + 127) << 23;
  const float result = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : result;
}

constexpr float kRootTwoOverPi = 0.797884561F;
constexpr float kCubic = 0.044715F;

// 1 / (1 + exp(-2 z)) with z = sqrt(2/pi) (x + 0.044715 x^3): GELU is x times
// it.
CLEAVE_INLINE float gelu_gate(float x) {
  const float z = kRootTwoOverPi * (x + kCubic * x * x * x);
  return 1.0F / (1.0F + fast_exp(-2.0F * z));
}

template <class Number>
CLEAVE_INLINE void gelu_loop(const Number* x, Number* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = to_float(x[i]);
    store(value * gelu_gate(value), y[i]);
  }
}

template <class Number>
CLEAVE_INLINE void gelu_backward_loop(const Number* x,
                                      const Number* dy,
                                      Number* dx,
                                      std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = to_float(x[i]);
    const float gate = gelu_gate(value);
    const float slope =
        2.0F * kRootTwoOverPi * (1.0F + 3.0F * kCubic * value * value);
    const float of_gate = gate * (1.0F - gate) * slope;
    store(to_float(dy[i]) * (gate + value * of_gate), dx[i]);
  }
}

template <class Number>
CLEAVE_INLINE float largest_of(const Number* values, std::int64_t count) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = to_float(values[i + lane]);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) {
    largest = std::max(largest, to_float(values[i]));
  }
  return largest;
}

CLEAVE_INLINE float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

// out = exp(scale * (value - largest)); returns their sum with those in lanes.
template <class Number>
CLEAVE_INLINE float exponentials_loop(const Number* values,
                                      Number* out,
                                      std::int64_t count,
                                      float largest,
                                      float scale,
                                      float (&lanes)[kLanes]) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value =
          fast_exp(scale * (to_float(values[i + lane]) - largest));
      store(value, out[i + lane]);
      lanes[lane] += value;
    }
  }
  float sum = sum_of(lanes);
  for (; i < count; ++i) {
    const float value = fast_exp(scale * (to_float(values[i]) - largest));
    store(value, out[i]);
    sum += value;
  }
  return sum;
}

template <class Number>
CLEAVE_INLINE void scale_loop(Number* out, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    store(to_float(out[i]) * factor, out[i]);
  }
}

template <class Number>
CLEAVE_INLINE float softmax_loop(const ScoreRow& row, Number* scores) {
  const float largest = largest_of(scores, row.seen);
  float lanes[kLanes] = {};
  const float sum =
      exponentials_loop(scores, scores, row.seen, largest, row.scale, lanes);
  scale_loop(scores, row.seen, 1.0F / sum);
  std::fill(scores + row.seen, scores + row.length, Number{});
  return row.scale * largest + std::log(sum);
}

// dscore = scale * p * (dp - sum of p dp).
template <class Number>
CLEAVE_INLINE void softmax_backward_loop(const ScoreRow& row,
                                         float log_sum,
                                         Number* scores,
                                         Number* gradient) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= row.seen; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float p =
          fast_exp(row.scale * to_float(scores[i + lane]) - log_sum);
      store(p, scores[i + lane]);
      lanes[lane] += p * to_float(gradient[i + lane]);
    }
  }
  float mean = sum_of(lanes);
  for (; i < row.seen; ++i) {
    const float p = fast_exp(row.scale * to_float(scores[i]) - log_sum);
    store(p, scores[i]);
    mean += p * to_float(gradient[i]);
  }
  for (i = 0; i < row.seen; ++i) {
    store(row.scale * to_float(scores[i]) * (to_float(gradient[i]) - mean),
          gradient[i]);
  }
  std::fill(scores + row.seen, scores + row.length, Number{});
  std::fill(gradient + row.seen, gradient + row.length, Number{});
}

template <class Number>
CLEAVE_INLINE float part_exponentials(const Number* scores,
                                      Number* out,
                                      std::int64_t count,
                                      float largest,
                                      LaneSums& sums) {
  LaneSums own = sums;  // a local copy: no alias can change it
  const float sum =
      exponentials_loop(scores, out, count, largest, 1.0F, own.of);
  sums = own;
  return sum;
}

constexpr int kLevels = 4;
constexpr int kLevelRows = 16;

// Sums of rows, sums of sixteen rows, and so on.
struct LevelSums {
  float of[kLevels][kSumColumns] = {};
};

CLEAVE_INLINE void move_up(LevelSums& sums, int level) {
  for (std::int64_t i = 0; i < kSumColumns; ++i) {
    sums.of[level][i] += sums.of[level - 1][i];
    sums.of[level - 1][i] = 0;
  }
}

CLEAVE_INLINE void sum_columns(const float* values,
                               std::int64_t rows,
                               std::int64_t stride,
                               float* result) {
  LevelSums sums;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < kSumColumns; ++i) {
      sums.of[0][i] += values[row * stride + i];
    }
    // A level is full: it goes into the next one, which may be full then too.
    std::int64_t full = row + 1;
    for (int level = 1; level < kLevels && full % kLevelRows == 0; ++level) {
      move_up(sums, level);
      full /= kLevelRows;
    }
  }
  for (int level = 1; level < kLevels; ++level) {
    for (std::int64_t i = 0; i < kSumColumns; ++i) {
      sums.of[0][i] += sums.of[level][i];
    }
  }
  for (std::int64_t i = 0; i < kSumColumns; ++i) {
    result[i] = sums.of[0][i];
  }
}

}  // namespace

CLEAVE_CLONES void gelu(const float* x, float* y, std::int64_t count) {
  gelu_loop(x, y, count);
}

CLEAVE_CLONES void gelu(const Bf16* x, Bf16* y, std::int64_t count) {
  gelu_loop(x, y, count);
}

CLEAVE_CLONES void gelu_backward(const float* x,
                                 const float* dy,
                                 float* dx,
                                 std::int64_t count) {
  gelu_backward_loop(x, dy, dx, count);
}

CLEAVE_CLONES void gelu_backward(const Bf16* x,
                                 const Bf16* dy,
                                 Bf16* dx,
                                 std::int64_t count) {
  gelu_backward_loop(x, dy, dx, count);
}

CLEAVE_CLONES float softmax(const ScoreRow& row, float* scores) {
  return softmax_loop(row, scores);
}

CLEAVE_CLONES float softmax(const ScoreRow& row, Bf16* scores) {
  return softmax_loop(row, scores);
}

CLEAVE_CLONES void softmax_backward(const ScoreRow& row,
                                    float log_sum,
                                    float* scores,
                                    float* gradient) {
  softmax_backward_loop(row, log_sum, scores, gradient);
}

CLEAVE_CLONES void softmax_backward(const ScoreRow& row,
                                    float log_sum,
                                    Bf16* scores,
                                    Bf16* gradient) {
  softmax_backward_loop(row, log_sum, scores, gradient);
}

CLEAVE_CLONES float largest(const float* values, std::int64_t count) {
  return largest_of(values, count);
}

CLEAVE_CLONES float largest(const Bf16* values, std::int64_t count) {
  return largest_of(values, count);
}

CLEAVE_CLONES float exponentials(const float* scores,
                                 float* out,
                                 std::int64_t count,
                                 float largest,
                                 LaneSums& sums) {
  return part_exponentials(scores, out, count, largest, sums);
}

CLEAVE_CLONES float exponentials(const Bf16* scores,
                                 Bf16* out,
                                 std::int64_t count,
                                 float largest,
                                 LaneSums& sums) {
  return part_exponentials(scores, out, count, largest, sums);
}

CLEAVE_CLONES void scale(float* values, std::int64_t count, float factor) {
  scale_loop(values, count, factor);
}

CLEAVE_CLONES void scale(Bf16* values, std::int64_t count, float factor) {
  scale_loop(values, count, factor);
}

CLEAVE_CLONES void add(float* sums, const Bf16* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] += to_float(values[i]);
  }
}

CLEAVE_CLONES void relu(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[i] < 0.0F ? 0.0F : x[i];
  }
}

CLEAVE_CLONES void relu_backward(const float* y,
                                 const float* dy,
                                 float* dx,
                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = y[i] <= 0.0F ? 0.0F : dy[i];
  }
}

CLEAVE_CLONES void sum_rows(const float* values,
                            std::int64_t rows,
                            std::int64_t columns,
                            float* sums) {
  for (std::int64_t first = 0; first < columns; first += kSumColumns) {
    sum_columns(values + first, rows, columns, sums + first);
  }
}

}  // namespace cleave::kernels
