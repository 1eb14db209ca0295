#pragma once

#include "cleave/cli/config/config.h"
#include "cleave/data/sources.h"
#include "cleave/device/device.h"
#include "cleave/model/model.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/plan.h"
#include "cleave/policies.h"
#include "cleave/train/trainer.h"

// From what the user wrote to what the library takes.
namespace cleave {

TrainAndTest data_of(const Config& config);

// A model that fits the data. Throws Error where the family cannot.
Model model_of(const Config& config, const Dataset& data);

Loss loss_of(const Config& config, const Dataset& data);

DeviceOptions device_options_of(const Config& config);

// Of this machine; for ranks that are not started yet, what they would get.
Devices devices_of(const Config& config);

// `batch`: the samples of a step.
Training training_of(const Config& config,
                     const Dataset& data,
                     std::int64_t batch);

FitOptions fit_options_of(const Config& config, const Dataset* test);

// The plan the configuration names, or a new one after measuring the model.
Plan plan_of(const Config& config,
             const Model& model,
             const Dataset& data,
             const Devices& devices,
             const MessageSpeed& messages = {});

}  // namespace cleave
