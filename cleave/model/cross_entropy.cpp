#include "cleave/model/cross_entropy.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <span>
#include <string>

#include "cleave/error.h"
#include "cleave/model/numbers.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRowShare = 4;  // rows that pay for a thread

bool is_held_by_nobody_else(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.is_contiguous();
}

void check_targets(const at::Tensor& targets, std::int64_t classes) {
  const std::span all(targets.const_data_ptr<std::int64_t>(),
                      static_cast<std::size_t>(targets.numel()));
  for (const std::int64_t target : all) {
    if (target != kIgnoredTarget && (target < 0 || target >= classes)) {
      fail("target " + std::to_string(target) +
               " is out of bounds: there are " + std::to_string(classes) +
               " classes",
           "");
    }
  }
}

// Of one row of scores; where it does not count, `target` is kIgnoredTarget.
template <class Number>
float row_loss(const Number* scores,
               Number* room,
               std::int64_t classes,
               std::int64_t target,
               float& sum) {
  const bool counts = target != kIgnoredTarget;
  const float chosen = counts ? to_float(scores[target]) : 0.0F;
  const kernels::Exponentials found =
      kernels::exponentials(scores, room, classes);
  sum = found.sum;
  return counts ? std::log(found.sum) - (chosen - found.largest) : 0.0F;
}

struct RowwiseCrossEntropy : torch::autograd::Function<RowwiseCrossEntropy> {
  // Writes exp(score - largest of the row) to `room`, which may be the scores'
  // own memory.
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& scores,
                            const at::Tensor& targets,
                            const at::Tensor& room) {
    const std::int64_t classes = scores.size(1);
    const at::Tensor sums = at::empty({scores.size(0)}, at::dtype(at::kFloat));
    const at::Tensor losses = at::empty_like(sums);
    float* const sum = sums.mutable_data_ptr<float>();
    float* const loss = losses.mutable_data_ptr<float>();
    const auto* target = targets.const_data_ptr<std::int64_t>();
    for_number_type(scores, [&]<class Number>(Number /*type*/) {
      const Number* from = numbers<Number>(scores);
      Number* to = numbers<Number>(room);
      at::parallel_for(0,
                       scores.size(0),
                       kRowShare,
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t row = first; row < end; ++row) {
                           loss[row] = row_loss(from + row * classes,
                                                to + row * classes,
                                                classes,
                                                target[row],
                                                sum[row]);
                         }
                       });
    });
    context->save_for_backward({room, targets, sums});
    context->saved_data["spent"] = false;
    return losses.sum();
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
    const std::int64_t classes = room.size(1);
    const auto weight = gradients[0].item<float>();
    const auto* target = saved[1].const_data_ptr<std::int64_t>();
    const float* sum = saved[2].const_data_ptr<float>();
    for_number_type(room, [&]<class Number>(Number /*type*/) {
      Number* const values = numbers<Number>(room);
      at::parallel_for(0,
                       room.size(0),
                       kRowShare,
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t row = first; row < end; ++row) {
                           Number* const own = values + row * classes;
                           const bool counts = target[row] != kIgnoredTarget;
                           kernels::scale(
                               own, classes, counts ? weight / sum[row] : 0.0F);
                           if (counts) {
                             Number& chosen = own[target[row]];
                             store(to_float(chosen) - weight, chosen);
                           }
                         }
                       });
    });
    return {room, {}, {}};
  }
};

}  // namespace

// NOLINTNEXTLINE: by value, to see whether anybody else holds the scores.
at::Tensor cross_entropy_sum(at::Tensor scores, const at::Tensor& targets) {
  if (!at::GradMode::is_enabled() || !scores.requires_grad() ||
      !has_number_type(scores)) {
    return at::cross_entropy_loss(
        scores, targets, /*weight=*/{}, at::Reduction::Sum, kIgnoredTarget);
  }
  const at::Tensor in_order = targets.contiguous();
  check_targets(in_order, scores.size(1));
  const at::Tensor room =
      is_held_by_nobody_else(scores)
          ? scores.detach()
          : at::empty_like(scores.detach(), at::MemoryFormat::Contiguous);
  return RowwiseCrossEntropy::apply(scores.contiguous(), in_order, room);
}

}  // namespace cleave
