#include "cleave/train/trainer.h"

#include "cleave/train/trainer_core.h"

namespace cleave {
namespace {

class NoSink : public EventSink {
 public:
  void on(const Event&) override {}
};

}  // namespace

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const Training& training)
    : core_(std::make_unique<TrainerCore>(
          model, plan, devices, training, nullptr)) {}

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const Training& training,
                 World& world)
    : core_(std::make_unique<TrainerCore>(
          model, plan, devices, training, &world)) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&& other) noexcept = default;

StepDone Trainer::step(const Batch& batch) {
  return core_->step(batch);
}

FitResult Trainer::fit(const Dataset& data,
                       const FitOptions& options,
                       EventSink& events) {
  return core_->fit(data, options, events);
}

FitResult Trainer::fit(const Dataset& data, const FitOptions& options) {
  NoSink events;
  return core_->fit(data, options, events);
}

Evaluation Trainer::evaluate(const Dataset& data) {
  return core_->evaluate(data);
}

std::vector<NamedTensors> Trainer::stages() {
  return core_->stages();
}

NamedTensors Trainer::merged() {
  NamedTensors all;
  for (NamedTensors& stage : core_->stages()) {
    all.insert(all.end(), stage.begin(), stage.end());
  }
  return all;
}

std::vector<std::uint64_t> Trainer::fingerprints() {
  return core_->fingerprints();
}

std::vector<Bytes> Trainer::optimizer_states() {
  return core_->optimizer_states();
}

std::vector<Bytes> Trainer::peak_memory() const {
  return core_->peak_memory();
}

}  // namespace cleave
