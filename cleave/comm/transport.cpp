#include "cleave/comm/transport.h"

namespace cleave {

std::string to_text(const Tag& tag) {
  const std::string number = std::to_string(tag.microbatch.value);
  switch (tag.channel) {
    case Channel::values:
      return "the values of microbatch " + number;
    case Channel::gradients:
      return "the gradients of microbatch " + number;
    case Channel::tied_gradient:
      return "the gradient of a shared parameter, microbatch " + number;
    case Channel::tied_value:
      return "the new value of a shared parameter";
    case Channel::norms:
      return "the norms of its gradients";
    case Channel::global_norm:
      return "the norm of all gradients";
  }
  return "a message";
}

}  // namespace cleave
