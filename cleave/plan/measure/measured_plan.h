#pragma once

#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/model/model.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/plan.h"
#include "cleave/policies.h"

namespace cleave {

// Profiles the model with the first samples of the data and plans it over the
// devices. A step has the training's batch, or all the data where that is less.
// Where it leaves the number of
// microbatches open, the model is profiled with microbatches of two sizes, and
// of a few numbers per device the one is taken that is predicted to be fastest.
// `messages`: between ranks that are processes.
Plan plan(const Model& model,
          const Devices& devices,
          const Dataset& data,
          const Training& training,
          const PlanRequest& request = {},
          const MessageSpeed& messages = {});

// The same with part of `sample`, at least one microbatch.
Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const Training& training,
          const PlanRequest& request = {},
          const MessageSpeed& messages = {});

}  // namespace cleave
