#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cleave/comm/collectives.h"
#include "cleave/ids.h"

namespace cleave {

// The same stage of all replicas.
struct Mirrors {
  Transport& ranks;
  StageId stage;
  int stages = 1;  // of the whole pipeline
};

// Parameters whose gradients are summed together, as indices.
using Bucket = std::vector<std::size_t>;

// Adds up the gradients of a stage's parameters over its mirrors, in buckets.
// The sum of one goes on while gradients of others are still computed. Used by
// the rank's thread.
class GradientSums {
 public:
  // Where only the own sections are wanted, gradients are dropped as soon as
  // their sum has begun. Borrows the mirrors' transport, which must outlive it.
  GradientSums(const Mirrors& mirrors,
               std::vector<at::Tensor> parameters,
               std::vector<Bucket> buckets,
               Sum::Wanted wanted);

  // The parameter has its gradient of this step. Returns the bucket that is
  // complete with it, if one is.
  std::optional<int> note(const at::Tensor& parameter);

  // Begins the sum of a bucket, unless it has begun; a gradient that is
  // undefined adds nothing. Goes on with other sums as far as possible.
  void begin(int bucket);

  // The sums, by parameter. Waits for them. REQUIRES: all buckets have begun.
  Message finish();

 private:
  struct Pending {
    std::size_t noted = 0;   // parameters with their gradient
    std::optional<Sum> sum;  // once begun
  };

  Mirrors mirrors_;
  std::vector<at::Tensor> parameters_;
  std::vector<Bucket> buckets_;
  Sum::Wanted wanted_;
  std::vector<Pending> pending_;          // by bucket
  std::map<const void*, int> bucket_of_;  // by parameter
};

}  // namespace cleave
