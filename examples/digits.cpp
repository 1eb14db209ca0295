// A whole training in thirty lines: describe a network, plan it over two
// devices, train its stages in parallel, merge them into one file, judge it.
#include <cleave/cleave.h>

#include <iostream>

int main() {
  cleave::Model model("digits");
  model.add<torch::nn::Flatten>("flatten");
  model.add<torch::nn::Linear>("hidden", 784, 512);
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Linear>("out", 512, 10);

  const cleave::TrainAndTest data = cleave::load_data(
      "synthetic", {.synthetic = {.task = cleave::SyntheticTask::images}});
  const cleave::Devices devices = cleave::local_devices("cpu:2");

  const std::vector<std::int64_t> first{0, 1, 2, 3, 4, 5, 6, 7};
  const cleave::Plan plan =
      cleave::plan(model,
                   devices,
                   data.train->get(first),
                   {.loss = cleave::cross_entropy,
                    .make_update = cleave::updates_by(cleave::AdamW{})},
                   {.batch = 64, .microbatches = 8});
  std::cout << cleave::plan_table(plan);

  cleave::Trainer trainer(model,
                          plan,
                          devices,
                          {.loss = cleave::cross_entropy,
                           .optimizer = cleave::AdamW{},
                           .learning_rate = {.peak = 1e-3}});
  cleave::JsonlSink log("digits.jsonl", cleave::JsonlSink::Mode::truncate);
  trainer.fit(*data.train, {.epochs = 2}, log);

  cleave::save_safetensors(trainer.merged(), "digits.safetensors");
  const cleave::Evaluation judged = cleave::evaluate_file(
      model, "digits.safetensors", *data.test, cleave::cross_entropy, 64);
  std::cout << "test accuracy " << *judged.accuracy << '\n';
}
