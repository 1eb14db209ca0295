#include "cleave/optimizer/gradient_sums.h"

#include <torch/types.h>

#include <utility>

namespace cleave {

GradientSums::GradientSums(const Mirrors& mirrors,
                           std::vector<at::Tensor> parameters,
                           std::vector<Bucket> buckets,
                           Sum::Wanted wanted)
    : mirrors_(mirrors),
      parameters_(std::move(parameters)),
      buckets_(std::move(buckets)),
      wanted_(wanted),
      pending_(buckets_.size()) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (const std::size_t index : buckets_[bucket]) {
      bucket_of_[parameters_[index].unsafeGetTensorImpl()] =
          static_cast<int>(bucket);
    }
  }
}

std::optional<int> GradientSums::note(const at::Tensor& parameter) {
  const auto found = bucket_of_.find(parameter.unsafeGetTensorImpl());
  if (found == bucket_of_.end()) {
    return std::nullopt;
  }
  const int bucket = found->second;
  ++pending_[bucket].noted;
  return pending_[bucket].noted == buckets_[bucket].size()
             ? std::optional(bucket)
             : std::nullopt;
}

void GradientSums::begin(int bucket) {
  Pending& pending = pending_.at(bucket);
  if (pending.sum) {
    return;
  }
  Message gradients;
  for (const std::size_t index : buckets_[bucket]) {
    const at::Tensor& gradient = parameters_[index].grad();
    gradients.push_back(gradient.defined() ? gradient.contiguous() : gradient);
    if (wanted_ == Sum::Wanted::own_section) {
      parameters_[index].mutable_grad() = at::Tensor();
    }
  }
  pending.sum.emplace(mirrors_.ranks,
                      gradients,
                      wanted_,
                      bucket * mirrors_.stages + mirrors_.stage.value);
  pending.sum->begin();
  for (Pending& other : pending_) {
    if (other.sum) {
      other.sum->advance();
    }
  }
}

Message GradientSums::finish() {
  Message all(parameters_.size());
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    Pending& pending = pending_[bucket];
    Message sums = pending.sum->finish();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      all[buckets_[bucket][i]] = std::move(sums[i]);
    }
    pending.noted = 0;
    pending.sum.reset();
  }
  return all;
}

}  // namespace cleave
