#include "cleave/optimizer/bucket_sums.h"

#include <torch/types.h>

#include <algorithm>

namespace cleave {

BucketSums::BucketSums(const Mirrors& mirrors,
                       const std::vector<at::Tensor>& parameters,
                       Sum::Wanted wanted)
    : mirrors_(mirrors), parameters_(parameters), wanted_(wanted) {
  make_buckets();
}

// From the last parameter on: those get their gradients first.
void BucketSums::make_buckets() {
  Bytes filled;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const bool is_full =
        mirrors_.bucket.value > 0 && !(filled < mirrors_.bucket);
    if (buckets_.empty() || is_full) {
      buckets_.emplace_back();
      filled = {};
    }
    buckets_.back().first = i;
    ++buckets_.back().count;
    filled += Bytes{static_cast<std::int64_t>(parameters_[i].nbytes())};
    bucket_of_[parameters_[i].unsafeGetTensorImpl()] = buckets_.size() - 1;
  }
}

void BucketSums::ready(const at::Tensor& parameter) {
  Bucket& bucket = buckets_[bucket_of_.at(parameter.unsafeGetTensorImpl())];
  if (++bucket.ready == bucket.count) {
    begin(bucket);
  }
}

void BucketSums::begin() {
  for (Bucket& bucket : buckets_) {
    if (!bucket.sum) {
      begin(bucket);
    }
  }
}

// And does for the ones before what can be done meanwhile.
void BucketSums::begin(Bucket& bucket) {
  Message gradients;
  for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    gradients.push_back(gradient.defined() ? gradient.contiguous() : gradient);
    if (wanted_ == Sum::Wanted::own_section) {
      parameters_[i].mutable_grad() = at::Tensor();
    }
  }
  const auto place = static_cast<int>(&bucket - buckets_.data());
  bucket.sum.emplace(mirrors_.ranks,
                     gradients,
                     wanted_,
                     place * mirrors_.stages + mirrors_.stage.value);
  bucket.sum->begin();
  for (Bucket& other : buckets_) {
    if (other.sum) {
      other.sum->advance();
    }
  }
}

Message BucketSums::finish() {
  Message all(parameters_.size());
  for (Bucket& bucket : buckets_) {
    const Message sums = bucket.sum->finish();
    std::ranges::copy(sums,
                      all.begin() + static_cast<std::ptrdiff_t>(bucket.first));
    bucket.sum.reset();
    bucket.ready = 0;
  }
  return all;
}

}  // namespace cleave
