#pragma once

namespace cleave {

inline constexpr int kUserError = 1;
inline constexpr int kUsageError = 2;
inline constexpr int kResumable = 75;  // failed, but not for good

// Ends the program with this code; what there is to say has been said.
struct Exit {
  int code = 0;
};

}  // namespace cleave
