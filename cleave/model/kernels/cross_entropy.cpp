#include "cleave/model/kernels/cross_entropy.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <sstream>
#include <string>

#include "cleave/device/memory.h"
#include "cleave/error.h"
#include "cleave/model/join.h"
#include "cleave/model/kernels/numbers.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRowShare = 4;  // rows that pay for a thread

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

// Of every part: as many rows of scores as there are targets.
void check_shapes(const Values& scores, const at::Tensor& targets) {
  for (const at::Tensor& part : scores) {
    if (part.dim() == 0 ||
        part.sizes().slice(0, part.dim() - 1) != targets.sizes()) {
      std::ostringstream what;
      what << "scores " << part.sizes() << " do not go with targets "
           << targets.sizes();
      fail(what.str(),
           "Cross entropy takes a class number for every row of scores.");
    }
  }
}

// Scores of some of the classes, and where their exponentials go.
template <class Number>
struct Part {
  const Number* scores;
  Number* room;
  std::int64_t classes;
};

template <class Number>
std::vector<Part<Number>> parts_of(at::TensorList scores, const Values& rooms) {
  std::vector<Part<Number>> parts;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    parts.push_back({numbers<Number>(scores[i]),
                     numbers<Number>(rooms[i]),
                     scores[i].size(-1)});
  }
  return parts;
}

// Of one row of scores; where it does not count, `target` is kIgnoredTarget.
template <class Number>
float row_loss(const std::vector<Part<Number>>& parts,
               std::int64_t row,
               std::int64_t target,
               float& sum) {
  float largest = -std::numeric_limits<float>::infinity();
  float chosen = 0;
  std::int64_t first = 0;
  for (const Part<Number>& part : parts) {
    const Number* scores = part.scores + row * part.classes;
    largest = std::max(largest, kernels::largest(scores, part.classes));
    if (target >= first && target < first + part.classes) {
      chosen = to_float(scores[target - first]);
    }
    first += part.classes;
  }
  kernels::LaneSums sums;
  for (const Part<Number>& part : parts) {
    sum = kernels::exponentials(part.scores + row * part.classes,
                                part.room + row * part.classes,
                                part.classes,
                                largest,
                                sums);
  }
  return target == kIgnoredTarget ? 0.0F : std::log(sum) - (chosen - largest);
}

// From exponentials to the gradient, of one part of a row.
template <class Number>
void row_gradient(Number* values,
                  std::int64_t classes,
                  std::int64_t target,
                  float weight,
                  float sum) {
  const bool counts = target != kIgnoredTarget;
  kernels::scale(values, classes, counts ? weight / sum : 0.0F);
  if (counts && target >= 0 && target < classes) {
    store(to_float(values[target]) - weight, values[target]);
  }
}

// Where the exponentials of the parts go: their own memory, or other.
struct Rooms {
  Values of;
};

struct RowwiseCrossEntropy : torch::autograd::Function<RowwiseCrossEntropy> {
  static at::Tensor forward(AutogradContext* context,
                            at::TensorList scores,
                            const at::Tensor& targets,
                            const Rooms& rooms) {
    const std::int64_t rows = targets.numel();
    const at::Tensor sums = at::empty({rows}, at::dtype(at::kFloat));
    const at::Tensor losses = at::empty_like(sums);
    float* const sum = sums.mutable_data_ptr<float>();
    float* const loss = losses.mutable_data_ptr<float>();
    const auto* target = targets.const_data_ptr<std::int64_t>();
    for_number_type(scores[0], [&]<class Number>(Number /*type*/) {
      const std::vector<Part<Number>> parts =
          parts_of<Number>(scores, rooms.of);
      at::parallel_for(
          0, rows, kRowShare, [&](std::int64_t first, std::int64_t end) {
            for (std::int64_t row = first; row < end; ++row) {
              loss[row] = row_loss(parts, row, target[row], sum[row]);
            }
          });
    });
    variable_list saved = rooms.of;
    saved.insert(saved.end(), {targets, sums});
    context->save_for_backward(saved);
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
    variable_list found = context->get_saved_variables();
    const at::Tensor sums = found.back();
    found.pop_back();
    const at::Tensor targets = found.back();
    found.pop_back();
    const auto weight = gradients[0].item<float>();
    std::int64_t first = 0;
    for (const at::Tensor& room : found) {
      write_gradient(room, first, targets, sums, weight);
      first += room.size(-1);
    }
    found.resize(found.size() + 2);  // none of targets and rooms
    return found;
  }

 private:
  // Over the exponentials of the classes from `first` on.
  static void write_gradient(const at::Tensor& room,
                             std::int64_t first_class,
                             const at::Tensor& targets,
                             const at::Tensor& sums,
                             float weight) {
    const std::int64_t classes = room.size(-1);
    const auto* target = targets.const_data_ptr<std::int64_t>();
    const float* sum = sums.const_data_ptr<float>();
    for_number_type(room, [&]<class Number>(Number /*type*/) {
      Number* const values = numbers<Number>(room);
      at::parallel_for(0,
                       targets.numel(),
                       kRowShare,
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t row = first; row < end; ++row) {
                           const bool counts = target[row] != kIgnoredTarget;
                           row_gradient(
                               values + row * classes,
                               classes,
                               counts ? target[row] - first_class : target[row],
                               weight,
                               sum[row]);
                         }
                       });
    });
  }
};

// Parts before the last must be whole lanes, so that sums have the same bits.
bool can_go_by_rows(const Values& scores) {
  const at::Tensor& first = scores.front();
  for (const at::Tensor& part : scores) {
    const bool whole = part.size(-1) % kernels::kLanes == 0;
    if (!part.requires_grad() || !has_number_type(part) ||
        part.scalar_type() != first.scalar_type() ||
        (&part != &scores.back() && !whole)) {
      return false;
    }
  }
  return at::GradMode::is_enabled();
}

}  // namespace

// NOLINTNEXTLINE: by value, to see whether anybody else holds the scores.
at::Tensor cross_entropy_sum(Values scores, const at::Tensor& targets) {
  check_shapes(scores, targets);
  if (!can_go_by_rows(scores)) {
    if (scores.size() > 1) {
      Values whole;
      whole.push_back(joined(scores));
      scores.clear();
      return cross_entropy_sum(std::move(whole), targets);
    }
    const at::Tensor exact = scores[0].scalar_type() == at::kBFloat16
                                 ? scores[0].to(at::kFloat)
                                 : scores[0];
    return at::cross_entropy_loss(exact.reshape({-1, exact.size(-1)}),
                                  targets.reshape({-1}),
                                  /*weight=*/{},
                                  at::Reduction::Sum,
                                  kIgnoredTarget);
  }
  const at::Tensor in_order = targets.contiguous();
  std::int64_t classes = 0;
  Rooms rooms;
  for (at::Tensor& part : scores) {
    classes += part.size(-1);
    rooms.of.push_back(
        is_held_once(part) && part.is_contiguous()
            ? part.detach()
            : at::empty_like(part.detach(), at::MemoryFormat::Contiguous));
    part = part.contiguous();
  }
  check_targets(in_order, classes);
  return RowwiseCrossEntropy::apply(at::TensorList(scores), in_order, rooms);
}

}  // namespace cleave
