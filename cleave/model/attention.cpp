#include "cleave/model/attention.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "cleave/model/numbers.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRows = 128;  // of queries, at a time
// Of scores at a time: they should stay in a core's cache.
constexpr std::int64_t kScoreBytes = std::int64_t{512} << 10;
constexpr std::int64_t kScoreShare =
    16;  // rows of scores that pay for a thread

// Queries, keys or values of a sample's heads, [heads, length, d].
at::Tensor part_of(const at::Tensor& qkv,
                   std::int64_t sample,
                   std::int64_t part) {
  return qkv[sample].select(1, part).transpose(0, 1);
}

// One block of the scores of a sample: some heads, and some rows of queries
// with all keys that they see.
struct Block {
  std::int64_t first_head = 0;
  std::int64_t heads = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;

  std::int64_t seen() const { return first_row + rows; }
  at::Tensor queries_of(const at::Tensor& tensor) const {
    return tensor.narrow(0, first_head, heads).narrow(1, first_row, rows);
  }
  at::Tensor keys_of(const at::Tensor& tensor) const {
    return tensor.narrow(0, first_head, heads).narrow(1, 0, seen());
  }
};

// Calls visit(block) for all blocks of one sample, rows ascending.
template <class Visit>
void for_each_block(std::int64_t heads,
                    std::int64_t length,
                    std::int64_t number_bytes,
                    const Visit& visit) {
  const std::int64_t rows = std::min(kRows, length);
  const std::int64_t together = std::clamp<std::int64_t>(
      kScoreBytes / (rows * length * number_bytes), 1, heads);
  for (std::int64_t head = 0; head < heads; head += together) {
    for (std::int64_t row = 0; row < length; row += rows) {
      visit(Block{head,
                  std::min(together, heads - head),
                  row,
                  std::min(rows, length - row)});
    }
  }
}

// Calls visit(row of scores, head, row of queries) for a block's scores,
// [heads, rows, seen].
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

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& packed,
                            std::int64_t heads) {
    const at::Tensor qkv = unpacked(packed, heads);
    const std::int64_t samples = qkv.size(0);
    const std::int64_t length = qkv.size(1);
    const std::int64_t d = qkv.size(4);
    const at::Tensor log_sums =
        at::empty({samples, heads, length}, at::dtype(at::kFloat));
    const at::Tensor attended =
        at::empty({samples, length, heads, d}, qkv.options());
    const float scale = scale_of(d);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const at::Tensor q = part_of(qkv, sample, 0);
      const at::Tensor k = part_of(qkv, sample, 1);
      const at::Tensor v = part_of(qkv, sample, 2);
      const at::Tensor out = attended[sample].transpose(0, 1);
      float* const sums = log_sums[sample].mutable_data_ptr<float>();
      for_each_block(heads, length, qkv.element_size(), [&](const Block& b) {
        const at::Tensor scores =
            at::bmm(b.queries_of(q), b.keys_of(k).transpose(1, 2));
        for_number_type(scores, [&]<class Number>(Number /*type*/) {
          Number* const values = numbers<Number>(scores);
          for_each_row(
              b, [&](std::int64_t i, std::int64_t head, std::int64_t row) {
                sums[head * length + row] = kernels::softmax(
                    {.seen = row + 1, .length = b.seen(), .scale = scale},
                    values + i * b.seen());
              });
        });
        b.queries_of(out).copy_(at::bmm(scores, b.keys_of(v)));
      });
    }
    context->save_for_backward({packed, log_sums});
    context->saved_data["heads"] = heads;
    return attended.view({samples, length, heads * d});
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const at::Tensor qkv = unpacked(saved[0], heads);
    const std::int64_t length = qkv.size(1);
    const std::int64_t d = qkv.size(4);
    const at::Tensor given =
        gradients[0].reshape({qkv.size(0), length, heads, d});
    const at::Tensor found = at::empty_like(qkv);
    for (std::int64_t sample = 0; sample < qkv.size(0); ++sample) {
      backward_sample(
          qkv, saved[1][sample], given[sample].transpose(0, 1), found, sample);
    }
    return {found.view(saved[0].sizes()), {}};
  }

 private:
  static at::Tensor unpacked(const at::Tensor& packed, std::int64_t heads) {
    const std::int64_t d = packed.size(2) / (3 * heads);
    return packed.contiguous().view(
        {packed.size(0), packed.size(1), 3, heads, d});
  }

  static float scale_of(std::int64_t d) {
    return 1.0F / std::sqrt(static_cast<float>(d));
  }

  static void backward_sample(const at::Tensor& qkv,
                              const at::Tensor& log_sums,
                              const at::Tensor& given,
                              const at::Tensor& found,
                              std::int64_t sample) {
    const at::Tensor q = part_of(qkv, sample, 0);
    const at::Tensor k = part_of(qkv, sample, 1);
    const at::Tensor v = part_of(qkv, sample, 2);
    const at::Tensor dq = part_of(found, sample, 0);
    const at::Tensor dk = part_of(found, sample, 1);
    const at::Tensor dv = part_of(found, sample, 2);
    const std::int64_t length = q.size(1);
    const float scale = scale_of(q.size(2));
    const float* const sums = log_sums.const_data_ptr<float>();
    at::Tensor dk_sum;  // of the current heads
    at::Tensor dv_sum;
    for_each_block(q.size(0), length, q.element_size(), [&](const Block& b) {
      const at::Tensor scores =
          at::bmm(b.queries_of(q), b.keys_of(k).transpose(1, 2));
      const at::Tensor dscores =
          at::bmm(b.queries_of(given), b.keys_of(v).transpose(1, 2));
      for_number_type(scores, [&]<class Number>(Number /*type*/) {
        Number* const values = numbers<Number>(scores);
        Number* const dvalues = numbers<Number>(dscores);
        for_each_row(
            b, [&](std::int64_t i, std::int64_t head, std::int64_t row) {
              kernels::softmax_backward(
                  {.seen = row + 1, .length = b.seen(), .scale = scale},
                  sums[head * length + row],
                  values + i * b.seen(),
                  dvalues + i * b.seen());
            });
      });
      b.queries_of(dq).copy_(at::bmm(dscores, b.keys_of(k)));
      add_block(
          dk_sum, b, length, at::bmm(dscores.transpose(1, 2), b.queries_of(q)));
      add_block(dv_sum,
                b,
                length,
                at::bmm(scores.transpose(1, 2), b.queries_of(given)));
      if (b.seen() == length) {
        dk.narrow(0, b.first_head, b.heads).copy_(dk_sum);
        dv.narrow(0, b.first_head, b.heads).copy_(dv_sum);
      }
    });
  }

  // Adds what one block found for the keys it sees, in fp32.
  static void add_block(at::Tensor& sum,
                        const Block& block,
                        std::int64_t length,
                        const at::Tensor& part) {
    if (block.first_row == 0 && block.seen() == length) {
      sum = part;
      return;
    }
    if (block.first_row == 0) {
      sum = at::zeros({block.heads, length, part.size(2)},
                      part.options().dtype(at::kFloat));
    }
    sum.narrow(1, 0, block.seen()).add_(part);
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  return CausalAttention::apply(qkv, heads);
}

}  // namespace cleave
