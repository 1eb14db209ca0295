#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cleave {

// How many letters must be inserted, removed, replaced or swapped with their
// neighbour to turn one word into the other. Capitals count as small letters.
int edit_distance(std::string_view a, std::string_view b);

// The candidate a person most likely meant by `word`; the first of equals.
// Empty when none is near: more than a third of the letters would be wrong.
std::string nearest(std::string_view word,
                    std::span<const std::string_view> candidates);

}  // namespace cleave
