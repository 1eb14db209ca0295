#include "cleave/model/cross_entropy.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kBlockBytes = std::int64_t{256} << 10;

// Calls visit(first, count) for the blocks of rows.
template <class Visit>
void for_each_block(const at::Tensor& scores, Visit visit) {
  const std::int64_t row_bytes =
      std::max<std::int64_t>(scores.size(1) * scores.element_size(), 1);
  const std::int64_t rows = std::max<std::int64_t>(kBlockBytes / row_bytes, 1);
  for (std::int64_t first = 0; first < scores.size(0); first += rows) {
    visit(first, std::min(rows, scores.size(0) - first));
  }
}

// In single precision at least, so that sums keep their digits.
at::Tensor precise(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat)
                                                         : tensor;
}

bool is_held_by_nobody_else(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.is_contiguous();
}

struct BlockedCrossEntropy : torch::autograd::Function<BlockedCrossEntropy> {
  // Writes exp(score - largest of the row) to `room`, which may be the scores'
  // own memory.
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& scores,
                            const at::Tensor& targets,
                            const at::Tensor& room) {
    const at::Tensor counts = targets.ne(kIgnoredTarget).unsqueeze(1);
    const at::Tensor classes = targets.clamp_min(0).unsqueeze(1);
    const auto type = at::isReducedFloatingType(scores.scalar_type())
                          ? at::kFloat
                          : scores.scalar_type();
    const at::Tensor sums =
        at::empty({scores.size(0), 1}, scores.options().dtype(type));
    const at::Tensor losses = at::empty_like(sums);
    for_each_block(scores, [&](std::int64_t first, std::int64_t count) {
      at::Tensor block = precise(scores.narrow(0, first, count));
      const at::Tensor largest = block.amax(1, true);
      const at::Tensor chosen =
          block.gather(1, classes.narrow(0, first, count)) - largest;
      at::Tensor out = room.narrow(0, first, count);
      at::Tensor exponentials =
          out.scalar_type() == type ? out : at::empty_like(block);
      at::sub_out(exponentials, block, largest).exp_();
      at::Tensor sum = sums.narrow(0, first, count);
      at::sum_out(sum, exponentials, {1}, true);
      losses.narrow(0, first, count).copy_(sum.log() - chosen);
      if (!out.is_same(exponentials)) {
        out.copy_(exponentials);
      }
    });
    context->save_for_backward({room, classes, counts, sums});
    context->saved_data["spent"] = false;
    return losses.masked_fill_(counts.logical_not(), 0).sum();
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    if (context->saved_data["spent"].toBool()) {
      fail("the gradient of a cross entropy was asked for twice",
           "Compute the loss again, or use torch's own cross_entropy.");
    }
    context->saved_data["spent"] = true;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& room = saved[0];
    const at::Tensor weights =  // of every row: none where it does not count
        gradients[0].to(saved[3].scalar_type()) * saved[2];
    const at::Tensor factors = weights / saved[3];
    for_each_block(room, [&](std::int64_t first, std::int64_t count) {
      at::Tensor block = room.narrow(0, first, count);
      block.mul_(factors.narrow(0, first, count));
      block.scatter_add_(
          1,
          saved[1].narrow(0, first, count),
          weights.narrow(0, first, count).neg().to(block.scalar_type()));
    });
    return {room, {}, {}};
  }
};

}  // namespace

// NOLINTNEXTLINE: by value, to see whether anybody else holds the scores.
at::Tensor cross_entropy_sum(at::Tensor scores, const at::Tensor& targets) {
  if (!at::GradMode::is_enabled() || !scores.requires_grad()) {
    return at::cross_entropy_loss(
        scores, targets, /*weight=*/{}, at::Reduction::Sum, kIgnoredTarget);
  }
  const at::Tensor room = is_held_by_nobody_else(scores)
                              ? scores.detach()
                              : at::empty_like(scores.detach());
  return BlockedCrossEntropy::apply(scores, targets, room);
}

}  // namespace cleave
