// A whole training in twenty lines: describe a network, plan it over two
// devices, train its stages in parallel, merge them into one file, evaluate it.
#include <cleave/cleave.h>

#include <iostream>

int main() {
  cleave::Model model("digits");
  model.add<torch::nn::Flatten>("flatten");
  model.add<torch::nn::Linear>("hidden", 784, 512);
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Linear>("out", 512, 10);

  const auto data = cleave::load_data(
      "synthetic", {.synthetic = {.task = cleave::SyntheticTask::images}});
  const auto devices = cleave::local_devices("cpu:2");
  const cleave::Training training{.optimizer = cleave::AdamW{}, .batch = 64};

  const auto plan = cleave::plan(model, devices, *data.train, training);
  std::cout << cleave::plan_table(plan);

  cleave::Trainer trainer(model, plan, devices, training);
  trainer.fit(*data.train, {.epochs = 2});
  cleave::save_safetensors(trainer.merged(), "digits.safetensors");

  const auto found = cleave::evaluate_file(
      model, "digits.safetensors", *data.test, training.loss, 64);
  std::cout << "test accuracy " << *found.accuracy << '\n';
}
