// Adopting Cleave one line at a time: the same model object in the plain loop
// of libtorch that you have, and an existing torch::nn::Sequential as a model.
#include <cleave/cleave.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential existing(
      torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  const cleave::Model model = cleave::Model::from(existing);

  // One device, your own loop: build() gives an ordinary torch::nn::Module.
  const auto network = model.build();
  torch::optim::Adam optimizer(network->parameters(), 1e-2);
  const at::Tensor inputs = torch::rand({256, 2}) * 4 - 2;
  const at::Tensor targets = inputs.prod(1, /*keepdim=*/true);
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    torch::mse_loss(network->forward(inputs), targets).backward();
    optimizer.step();
  }
  std::cout << "one device, plain loop:  loss "
            << torch::mse_loss(network->forward(inputs), targets).item<float>()
            << '\n';

  // Two devices: the same model, a plan, a trainer.
  const cleave::Batch batch{inputs, targets};
  const cleave::Devices devices = cleave::local_devices("cpu:2");
  const cleave::Training training{.loss = cleave::mean_squared_error(),
                                  .learning_rate = cleave::constant_rate(1e-2),
                                  .batch = 256};
  const cleave::Plan plan = cleave::plan(
      model, devices, batch, training, {.stages = 2, .microbatches = 4});
  cleave::Trainer trainer(model, plan, devices, training);
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    loss = trainer.step(batch).loss;
  }
  std::cout << "two devices, pipelined:  loss " << loss << '\n';
}
