#include "cleave/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>

#include "cleave/checkpoint/safetensors_json.h"
#include "cleave/error.h"

namespace cleave {
namespace {

struct Dtype {
  std::string_view name;
  unsigned bits;
};

// In the format's order of alignment.
constexpr std::array kDtypes{
    Dtype{"BOOL", 8},        Dtype{"F4", 4},          Dtype{"F6_E2M3", 6},
    Dtype{"F6_E3M2", 6},     Dtype{"U8", 8},          Dtype{"I8", 8},
    Dtype{"F8_E5M2", 8},     Dtype{"F8_E4M3", 8},     Dtype{"F8_E8M0", 8},
    Dtype{"F8_E4M3FNUZ", 8}, Dtype{"F8_E5M2FNUZ", 8}, Dtype{"I16", 16},
    Dtype{"U16", 16},        Dtype{"F16", 16},        Dtype{"BF16", 16},
    Dtype{"I32", 32},        Dtype{"U32", 32},        Dtype{"F32", 32},
    Dtype{"C64", 64},        Dtype{"F64", 64},        Dtype{"I64", 64},
    Dtype{"U64", 64},
};

// The dtype's place in the table; the table's size where it is not in there.
std::size_t alignment_of(std::string_view dtype) {
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& known) {
        return known.name == dtype;
      });
  return static_cast<std::size_t>(found - kDtypes.begin());
}

std::string tensor(const SafetensorsEntry& entry) {
  return "tensor " + shown(entry.name);
}

// Empty: the name may stand in a file.
std::string problem_of_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxSafetensorsName) {
    return "has a name of " + std::to_string(name.size()) +
           " bytes, not of 1 to " + std::to_string(kMaxSafetensorsName);
  }
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  };
  if (std::any_of(name.begin(), name.end(), is_control)) {
    return "has control characters in its name";
  }
  return "";
}

// What the shape and dtype need. Dimensions of size zero do not excuse others
// whose product is beyond any file: strides would overflow.
std::uint64_t bytes_of(const SafetensorsEntry& entry,
                       const std::string& source) {
  const std::size_t alignment = alignment_of(entry.dtype);
  if (alignment == kDtypes.size()) {
    fail_in_file(
        source, tensor(entry) + " has the unknown dtype " + shown(entry.dtype));
  }
  const std::uint64_t width = kDtypes.at(alignment).bits;
  std::uint64_t bits = width;
  bool empty = false;
  for (const std::int64_t dimension : entry.shape) {
    const auto size = static_cast<std::uint64_t>(dimension);
    if (size == 0) {
      empty = true;
    } else if (size > 8 * kMaxSafetensorsInteger / bits) {
      fail_in_file(source, tensor(entry) + " has too large a shape");
    } else {
      bits *= size;
    }
  }
  if (empty) {
    return 0;
  }
  if (bits % 8 != 0) {
    fail_in_file(source, tensor(entry) + " does not fill whole bytes");
  }
  return bits / 8;
}

void check_entry(const SafetensorsEntry& entry, const std::string& source) {
  if (const std::string problem = problem_of_name(entry.name);
      !problem.empty()) {
    fail_in_file(source, tensor(entry) + " " + problem);
  }
  const std::uint64_t needed = bytes_of(entry, source);
  if (entry.end < entry.begin) {
    fail_in_file(source, tensor(entry) + " ends before it begins");
  }
  const std::uint64_t given = entry.end - entry.begin;
  if (given != needed) {
    fail_in_file(source,
                 tensor(entry) + " has " + std::to_string(given) +
                     " bytes but its shape and dtype need " +
                     std::to_string(needed));
  }
}

// No hole and no overlap: a file must not hide bytes, and the tensors together
// must not take more memory than the file.
void check_places(const SafetensorsHeader& header,
                  std::uint64_t data_size,
                  const std::string& source) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != end) {
      fail_in_file(source,
                   tensor(entry) + " begins at byte " +
                       std::to_string(entry.begin) +
                       " of the data, not where the one before it ends, at " +
                       std::to_string(end));
    }
    end = entry.end;
  }
  if (end != data_size) {
    fail_in_file(source,
                 "the tensors take " + std::to_string(end) +
                     " bytes but the file has " + std::to_string(data_size) +
                     " for them");
  }
}

[[noreturn]] void fail_to_write(const std::string& source,
                                const SafetensorsEntry& entry,
                                const std::string& problem) {
  fail("cannot write " + source + ": " + tensor(entry) + " " + problem,
       "Change that tensor.");
}

// What parse_safetensors_header would refuse must not be written.
void check_can_be_written(const SafetensorsHeader& header,
                          const std::string& source) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) {
    std::string problem = problem_of_name(entry.name);
    if (entry.name == kSafetensorsMetadata) {
      problem = "has a name that the format keeps for itself";
    } else if (!names.insert(entry.name).second) {
      problem = "is there twice";
    } else if (entry.shape.size() > kMaxSafetensorsDimensions) {
      problem = "has more than " + std::to_string(kMaxSafetensorsDimensions) +
                " dimensions";
    }
    if (!problem.empty()) {
      fail_to_write(source, entry, problem);
    }
  }
  if (names.size() > kMaxSafetensorsTensors) {
    fail("cannot write " + source + ": more than " +
             std::to_string(kMaxSafetensorsTensors) + " tensors",
         "Use several files.");
  }
}

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (std::uint64_t i = 0; i < kSafetensorsPrefix; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

}  // namespace

std::uint64_t safetensors_header_length(std::string_view first_bytes,
                                        std::uint64_t file_size,
                                        const std::string& source) {
  if (file_size < kSafetensorsPrefix ||
      first_bytes.size() < kSafetensorsPrefix) {
    fail_in_file(source,
                 "the file has " + std::to_string(file_size) +
                     " bytes, too few for a safetensors file");
  }
  std::uint64_t length = 0;
  for (int i = kSafetensorsPrefix - 1; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(first_bytes[i]);
  }
  if (length > kMaxSafetensorsHeader) {
    fail_in_file(source,
                 "the header claims " + std::to_string(length) +
                     " bytes, more than the " +
                     std::to_string(kMaxSafetensorsHeader) + " allowed");
  }
  if (length > file_size - kSafetensorsPrefix) {
    fail_in_file(source,
                 "the header claims " + std::to_string(length) +
                     " bytes but the file ends before that");
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::uint64_t file_size,
                                           const std::string& source) {
  SafetensorsHeader header = read_safetensors_json(json, source);
  for (const SafetensorsEntry& entry : header.entries) {
    check_entry(entry, source);
  }
  std::sort(header.entries.begin(),
            header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  check_places(header, file_size - kSafetensorsPrefix - json.size(), source);
  return header;
}

SafetensorsHeader laid_out(SafetensorsHeader header,
                           const std::string& source) {
  check_can_be_written(header, source);
  std::sort(header.entries.begin(),
            header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              const std::size_t place_a = alignment_of(a.dtype);
              const std::size_t place_b = alignment_of(b.dtype);
              return place_a != place_b ? place_a > place_b : a.name < b.name;
            });
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin = end;
    end += bytes_of(entry, source);
    entry.end = end;
    if (end > kMaxSafetensorsInteger) {
      fail("cannot write " + source + ": the tensors take 256 TiB or more",
           "Use several files.");
    }
  }
  return header;
}

std::string to_file_start(const SafetensorsHeader& header,
                          const std::string& source) {
  std::string json = write_safetensors_json(header, source);
  while (json.size() % kSafetensorsPrefix != 0) {
    json.push_back(' ');
  }
  if (json.size() > kMaxSafetensorsHeader) {
    fail("cannot write " + source + ": its header would exceed " +
             std::to_string(kMaxSafetensorsHeader) + " bytes",
         "Use several files, or less metadata.");
  }
  return little_endian(json.size()) + json;
}

}  // namespace cleave
