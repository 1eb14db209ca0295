#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cleave/comm/transport.h"

namespace cleave {

// What precedes a message's numbers between processes: its tag, and
// of its tensors the types, the shapes, how they lie in memory (to the address
// within 64 bytes: products of matrices have other bits otherwise), and whether
// they want a gradient. Small messages travel inside.
struct Envelope {
  Tag tag;
  Message tensors;      // with memory of their own, to be filled
  bool filled = false;  // by what was inside
};

// A message as bytes: the envelope, and the numbers where they are few. Sets
// `inside` to whether they are. REQUIRES: defined tensors fill their memory,
// each number once (in_one_piece).
std::vector<char> seal(const Tag& tag, const Message& message, bool& inside);

// The tensor, or, where it has gaps or numbers twice, a copy that has not.
at::Tensor in_one_piece(const at::Tensor& tensor);

// Memory for the tensors of a message, where there is some already.
using FindMemory = std::function<Message(const Tag&)>;

// Reads what seal() wrote. Tensors that `memory` has no place for, of their
// type, shape and order, are allocated. Throws Error on anything else.
Envelope unseal(std::string_view bytes, const FindMemory& memory = {});

}  // namespace cleave
