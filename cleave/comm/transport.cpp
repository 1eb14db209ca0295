#include "cleave/comm/transport.h"

#include "cleave/error.h"

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
    case Channel::tied_weight:
      return "the new value of a shared parameter";
    case Channel::norms:
      return "the norms of its gradients";
    case Channel::collective:
      return "its part of a sum or an exchange";
    case Channel::report:
      return "what it found in the step";
    case Channel::agreement:
      return "what all ranks must agree on";
    case Channel::clock:
      return "the time on its clock";
  }
  return "a message";
}

std::string to_text(const Activity& activity) {
  std::string text;
  if (activity.stage) {
    text += "stage " + std::to_string(activity.stage->value) + ", ";
  }
  if (activity.microbatch) {
    text += "microbatch " + std::to_string(activity.microbatch->value) + ", ";
  }
  return text + activity.what;
}

std::string name_of(Rank rank) {
  return "rank " + std::to_string(rank.value);
}

void fail_timed_out(const std::string& waiting,
                    const std::string& peer,
                    const Tag& tag,
                    Seconds patience) {
  fail(waiting + " waited " + to_text(patience) + " for " + to_text(tag) +
           " from " + peer,
       "See what " + peer + " is doing; give it longer with devices.patience.");
}

}  // namespace cleave
