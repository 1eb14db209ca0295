#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cleave/comm/collectives.h"
#include "cleave/ids.h"
#include "cleave/units.h"

namespace cleave {

// The same stage of all replicas.
struct Mirrors {
  Transport& ranks;
  StageId stage;
  int stages = 1;  // of the whole pipeline
  Bytes bucket;    // gradients that are added up together, at least; none: all
};

// Adds up the gradients of a stage's parameters over its mirrors, in buckets:
// neighbours that get their gradients at about the same time. A bucket is on
// its way as soon as it is complete, while others are still computed. Used by
// the rank's thread.
class BucketSums {
 public:
  // Where only the own sections are wanted, gradients are dropped as soon as
  // they are on their way. Borrows the mirrors' transport, which must outlive
  // it.
  BucketSums(const Mirrors& mirrors,
             const std::vector<at::Tensor>& parameters,
             Sum::Wanted wanted);

  // The parameter's gradient is complete. Need not be said of all.
  void ready(const at::Tensor& parameter);

  // All gradients are complete; what has none adds nothing.
  void begin();

  // The sums, by parameter. Waits for them.
  Message finish();

 private:
  struct Bucket {
    std::size_t first = 0;  // of its parameters
    std::size_t count = 0;
    std::size_t ready = 0;
    std::optional<Sum> sum;  // once begun
  };

  void make_buckets();
  void begin(Bucket& bucket);

  Mirrors mirrors_;
  std::vector<at::Tensor> parameters_;
  Sum::Wanted wanted_;
  std::vector<Bucket> buckets_;
  std::map<const void*, std::size_t> bucket_of_;  // by parameter
};

}  // namespace cleave
