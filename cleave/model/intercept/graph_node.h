#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace cleave {

// Owns a node of autograd's graph. How libtorch does that depends on its
// version.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class Node>
auto make_node() {
  if constexpr (std::is_constructible_v<NodePointer, std::shared_ptr<Node>>) {
    return std::shared_ptr<Node>(new Node(),
                                 [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>();
  }
}

}  // namespace cleave
