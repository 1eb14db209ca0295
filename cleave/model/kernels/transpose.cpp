#include <algorithm>
#include <cstring>
#include <utility>

#include "cleave/model/kernels/clones.h"
#include "cleave/model/kernels/kernels.h"

namespace cleave::kernels {
namespace {

// Sixteen floats of sixteen rows each, which a processor with AVX-512 has room
// for in its registers.
constexpr int kTile = 16;
using TileRow [[gnu::vector_size(kTile * sizeof(float))]] = float;

// Of two rows so far apart, exchanges what is as far off the diagonal.
template <int kDistance, std::size_t... kLane>
CLEAVE_INLINE void exchange(TileRow& upper,
                            TileRow& lower,
                            std::index_sequence<kLane...> /*lanes*/) {
  const TileRow first = upper;
  upper = __builtin_shufflevector(
      first,
      lower,
      ((kLane & kDistance) != 0 ? kTile + kLane - kDistance : kLane)...);
  lower = __builtin_shufflevector(
      first,
      lower,
      ((kLane & kDistance) != 0 ? kTile + kLane : kLane + kDistance)...);
}

template <int kDistance>
CLEAVE_INLINE void exchange_all(TileRow (&tile)[kTile]) {
#pragma GCC unroll 16
  for (int row = 0; row < kTile; ++row) {
    if ((row & kDistance) == 0) {
      exchange<kDistance>(
          tile[row], tile[row + kDistance], std::make_index_sequence<kTile>());
    }
  }
}

CLEAVE_INLINE void transpose_tile(const float* from,
                                  std::int64_t from_stride,
                                  float* to,
                                  std::int64_t to_stride) {
  TileRow tile[kTile];
  for (int row = 0; row < kTile; ++row) {
    std::memcpy(&tile[row], from + row * from_stride, sizeof(TileRow));
  }
  exchange_all<1>(tile);
  exchange_all<2>(tile);
  exchange_all<4>(tile);
  exchange_all<8>(tile);
  for (int row = 0; row < kTile; ++row) {
    std::memcpy(to + row * to_stride, &tile[row], sizeof(TileRow));
  }
}

}  // namespace

// A few columns at a time, so that lines of the matrix stay in the cache until
// all of them is read.
CLEAVE_CLONES void transpose(const float* matrix,
                             std::int64_t stride,
                             std::int64_t rows,
                             std::int64_t columns,
                             float* to) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t whole_rows = rows - rows % kTile;
  const std::int64_t whole_columns = columns - columns % kTile;
  for (std::int64_t first = 0; first < whole_columns; first += kColumns) {
    const std::int64_t end = std::min(first + kColumns, whole_columns);
    for (std::int64_t row = 0; row < whole_rows; row += kTile) {
      for (std::int64_t column = first; column < end; column += kTile) {
        transpose_tile(matrix + row * stride + column,
                       stride,
                       to + column * rows + row,
                       rows);
      }
    }
  }
  for (std::int64_t column = 0; column < columns; ++column) {
    const bool whole = column < whole_columns;
    for (std::int64_t row = whole ? whole_rows : 0; row < rows; ++row) {
      to[column * rows + row] = matrix[row * stride + column];
    }
  }
}

}  // namespace cleave::kernels
