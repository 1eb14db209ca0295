#include <cleave/cleave.h>

#include <iostream>

int main() {
  cleave::Model model("outside");
  model.add<torch::nn::Linear>("only", 3, 2);
  const at::Tensor result = model.build()->forward(torch::ones({4, 3}));
  std::cout << "outside: " << result.sizes() << '\n';
  return result.size(1) == 2 ? 0 : 1;
}
