#pragma once

#include <string>
#include <string_view>

#include "cleave/checkpoint/safetensors_header.h"

// The JSON of a safetensors header: its grammar, not yet its sense, which
// safetensors_header.h checks.
namespace cleave {

// The entries in the order of their names. Throws Error for anything but the
// one form: no key twice, no unknown or missing field, no number but unsigned
// integers up to kMaxSafetensorsInteger.
SafetensorsHeader read_safetensors_json(std::string_view json,
                                        const std::string& source);

// Without white space. Throws Error where a name or the metadata is not UTF-8.
std::string write_safetensors_json(const SafetensorsHeader& header,
                                   const std::string& source);

// A name from a file as it may be part: quoted, escaped and not too long.
std::string shown(std::string_view name);

// Throws Error: "SOURCE: problem", and that the file itself must change.
[[noreturn]] void fail_in_file(const std::string& source,
                               const std::string& problem,
                               const char* file = __builtin_FILE(),
                               int line = __builtin_LINE());

}  // namespace cleave
