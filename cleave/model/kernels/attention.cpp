#include "cleave/model/kernels/attention.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "cleave/model/kernels/numbers.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRows = 64;  // of queries, at a time
// Of scores at a time: they should stay in a core's cache.
constexpr std::int64_t kScoreBytes = std::int64_t{512} << 10;
constexpr std::int64_t kScoreShare =
    16;  // rows of scores that pay for a thread

// Queries, keys and values, each [n * heads, length, d].
struct Parts {
  // Copied out of where they lie side by side: products of matrices that lie in
  // order are several times as fast.
  Parts(const at::Tensor& qkv, std::int64_t heads)
      : together(qkv.view({qkv.size(0), qkv.size(1), 3, heads, -1})
                     .permute({2, 0, 3, 1, 4})
                     .contiguous()
                     .flatten(1, 2)),
        q(together[0]),
        k(together[1]),
        v(together[2]) {}

  explicit Parts(const at::Tensor& all)
      : together(all), q(all[0]), k(all[1]), v(all[2]) {}

  // Room for gradients of the same shape.
  Parts like() const { return Parts(at::empty_like(together)); }

  std::int64_t heads() const { return q.size(0); }  // of all samples
  std::int64_t length() const { return q.size(1); }
  float scale() const {
    return 1.0F / std::sqrt(static_cast<float>(q.size(2)));
  }

  at::Tensor together;
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// [n * heads, length, d] to [n, length, heads * d].
at::Tensor side_by_side(const at::Tensor& attended, std::int64_t heads) {
  return attended.view({-1, heads, attended.size(1), attended.size(2)})
      .transpose(1, 2)
      .flatten(2, 3);
}

// One block of the scores: some heads, and some rows of queries with all keys
// that they see.
struct Block {
  std::int64_t first_head = 0;
  std::int64_t heads = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;

  std::int64_t seen() const { return first_row + rows; }
  at::Tensor heads_of(const at::Tensor& tensor) const {
    return tensor.narrow(0, first_head, heads);
  }
  at::Tensor queries_of(const at::Tensor& tensor) const {
    return heads_of(tensor).narrow(1, first_row, rows);
  }
  at::Tensor keys_of(const at::Tensor& tensor) const {
    return heads_of(tensor).narrow(1, 0, seen());
  }
  at::Tensor products(const at::Tensor& queries, const at::Tensor& keys) const {
    return at::bmm(queries_of(queries), keys_of(keys).transpose(1, 2));
  }
};

// Calls visit(block) for all blocks, rows of the same heads ascending.
template <class Visit>
void for_each_block(const Parts& parts, const Visit& visit) {
  const std::int64_t length = parts.length();
  const std::int64_t rows = std::min(kRows, length);
  const std::int64_t together = std::clamp<std::int64_t>(
      kScoreBytes / (rows * length * parts.q.element_size()), 1, parts.heads());
  for (std::int64_t head = 0; head < parts.heads(); head += together) {
    for (std::int64_t row = 0; row < length; row += rows) {
      visit(Block{head,
                  std::min(together, parts.heads() - head),
                  row,
                  std::min(rows, length - row)});
    }
  }
}

// Calls visit(row of the block's scores, head, row of queries) for all of them.
template <class Visit>
void for_each_row(const Block& block, const Visit& visit) {
  at::parallel_for(0,
                   block.heads * block.rows,
                   kScoreShare,
                   [&](std::int64_t first, std::int64_t end) {
                     for (std::int64_t i = first; i < end; ++i) {
                       visit(i,
                             block.first_head + i / block.rows,
                             block.first_row + i % block.rows);
                     }
                   });
}

// Scores to probabilities; the logarithms of their sums to `log_sums`.
void normalise(const Block& block,
               float scale,
               const at::Tensor& scores,
               const at::Tensor& log_sums) {
  float* const sums = log_sums.mutable_data_ptr<float>();
  const std::int64_t length = log_sums.size(1);
  for_number_type(scores, [&]<class Number>(Number /*type*/) {
    Number* const values = numbers<Number>(scores);
    for_each_row(
        block, [&](std::int64_t i, std::int64_t head, std::int64_t row) {
          sums[head * length + row] = kernels::softmax(
              {.seen = row + 1, .length = block.seen(), .scale = scale},
              values + i * block.seen());
        });
  });
}

// Scores to probabilities once more; gradients of those to gradients of scores.
void normalise_backward(const Block& block,
                        float scale,
                        const at::Tensor& log_sums,
                        const at::Tensor& scores,
                        const at::Tensor& gradients) {
  const float* const sums = log_sums.const_data_ptr<float>();
  const std::int64_t length = log_sums.size(1);
  for_number_type(scores, [&]<class Number>(Number /*type*/) {
    Number* const values = numbers<Number>(scores);
    Number* const given = numbers<Number>(gradients);
    for_each_row(
        block, [&](std::int64_t i, std::int64_t head, std::int64_t row) {
          kernels::softmax_backward(
              {.seen = row + 1, .length = block.seen(), .scale = scale},
              sums[head * length + row],
              values + i * block.seen(),
              given + i * block.seen());
        });
  });
}

// Adds what the blocks of some heads find for the keys they see, in fp32.
class KeySum {
 public:
  // Adds `part`; with the last block, writes the sum to `to`.
  void add(const Block& block, const at::Tensor& part, const at::Tensor& to) {
    const bool is_last = block.seen() == to.size(1);
    if (block.first_row == 0) {
      sum_ = is_last ? part
                     : at::zeros({block.heads, to.size(1), to.size(2)},
                                 part.options().dtype(at::kFloat));
    }
    if (!sum_.is_same(part)) {
      sum_.narrow(1, 0, block.seen()).add_(part);
    }
    if (is_last) {
      block.heads_of(to).copy_(sum_);
    }
  }

 private:
  at::Tensor sum_;
};

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& qkv,
                            std::int64_t heads) {
    const Parts parts(qkv, heads);
    const at::Tensor log_sums =
        at::empty({parts.heads(), parts.length()}, at::dtype(at::kFloat));
    const at::Tensor attended = at::empty_like(parts.v);
    for_each_block(parts, [&](const Block& block) {
      const at::Tensor scores = block.products(parts.q, parts.k);
      normalise(block, parts.scale(), scores, log_sums);
      block.queries_of(attended).copy_(at::bmm(scores, block.keys_of(parts.v)));
    });
    context->save_for_backward({qkv, log_sums});
    context->saved_data["heads"] = heads;
    return side_by_side(attended, heads);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const Parts parts(saved[0], heads);
    const Parts found = parts.like();
    const at::Tensor given =
        gradients[0]
            .reshape({-1, parts.length(), heads, parts.q.size(2)})
            .transpose(1, 2)
            .contiguous()
            .flatten(0, 1);
    KeySum of_keys;
    KeySum of_values;
    for_each_block(parts, [&](const Block& block) {
      const at::Tensor scores = block.products(parts.q, parts.k);
      const at::Tensor dscores = block.products(given, parts.v);
      normalise_backward(block, parts.scale(), saved[1], scores, dscores);
      block.queries_of(found.q).copy_(at::bmm(dscores, block.keys_of(parts.k)));
      of_keys.add(block,
                  at::bmm(dscores.transpose(1, 2), block.queries_of(parts.q)),
                  found.k);
      of_values.add(block,
                    at::bmm(scores.transpose(1, 2), block.queries_of(given)),
                    found.v);
    });
    return {found.together.view({3, -1, heads, parts.length(), parts.q.size(2)})
                .permute({1, 3, 0, 2, 4})
                .flatten(2, 4),
            {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  return CausalAttention::apply(qkv.contiguous(), heads);
}

}  // namespace cleave
