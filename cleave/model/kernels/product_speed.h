#pragma once

#include <string>

#include "cleave/device/device.h"

namespace cleave {

// How fast one device multiplies matrices as linear layers do, in operations
// per second.
struct ProductSpeed {
  double fp32 = 0;
  double bf16 = 0;
};

// "153", for 153e9 operations per second.
std::string gigaflops(double speed);

// A sentence that advises against bf16 where it is slower; empty otherwise.
std::string bf16_warning(const ProductSpeed& speed);

// Measured on the device with products of a transformer's size; takes a few
// tenths of a second.
ProductSpeed measure_products(const Device& device);

}  // namespace cleave
