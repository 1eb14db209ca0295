#include "cleave/comm/mpi/envelope.h"

#include <torch/types.h>
#include <unistd.h>

#include <cstring>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::size_t kFewBytes = 4096;  // that do not pay for a message
constexpr std::int64_t kUndefined = -1;  // in place of a type
constexpr std::int64_t kMaxTensors = 1 << 16;
constexpr std::int64_t kMaxDimensions = 64;
constexpr std::int64_t kAlignment = 64;  // bytes; of every tensor's memory

class Writer {
 public:
  void number(std::int64_t value) {
    const char* const from = reinterpret_cast<const char*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(value));
  }
  void numbers_of(const at::Tensor& tensor) {
    const char* const from = static_cast<const char*>(tensor.const_data_ptr());
    bytes_.insert(bytes_.end(), from, from + tensor.nbytes());
  }
  std::vector<char> take() { return std::move(bytes_); }

 private:
  std::vector<char> bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::int64_t number(std::int64_t least, std::int64_t most) {
    std::int64_t value = 0;
    copy(&value, sizeof(value));
    if (value < least || value > most) {
      refuse();
    }
    return value;
  }
  void numbers_of(at::Tensor& tensor) {
    copy(tensor.data_ptr(), tensor.nbytes());
  }
  void end() const {
    if (!bytes_.empty()) {
      refuse();
    }
  }

  [[noreturn]] static void refuse() {
    fail("a message from another rank cannot be read",
         "Start all ranks with the same build of Cleave.");
  }

 private:
  void copy(void* to, std::size_t count) {
    if (bytes_.size() < count) {
      refuse();
    }
    if (count > 0) {
      std::memcpy(to, bytes_.data(), count);
    }
    bytes_.remove_prefix(count);
  }

  std::string_view bytes_;
};

constexpr std::int64_t kMost = std::int64_t{1} << 40;

// By how many numbers its memory begins behind a multiple of kAlignment.
std::int64_t offset_of(const at::Tensor& tensor) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return static_cast<std::int64_t>(address % kAlignment /
                                   tensor.element_size());
}

// Refuses what a machine like this one cannot have sent.
void check_room(const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  const double room = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<double>(sysconf(_SC_PAGE_SIZE));
  auto bytes = static_cast<double>(c10::elementSize(type));
  for (const std::int64_t size : sizes) {
    bytes *= static_cast<double>(size);
  }
  if (bytes > room) {
    Reader::refuse();
  }
}

bool is_place_for(const at::Tensor& memory,
                  at::ScalarType type,
                  const std::vector<std::int64_t>& sizes,
                  const std::vector<std::int64_t>& strides) {
  return memory.defined() && memory.scalar_type() == type &&
         memory.sizes() == sizes && memory.strides() == strides;
}

at::Tensor read_shape(Reader& reader, const at::Tensor& place) {
  const std::int64_t type =
      reader.number(kUndefined, static_cast<int>(at::ScalarType::NumOptions));
  if (type == kUndefined) {
    return {};
  }
  const bool wants_gradient = reader.number(0, 1) == 1;
  const std::int64_t offset = reader.number(0, kAlignment);
  std::vector<std::int64_t> sizes(reader.number(0, kMaxDimensions));
  std::vector<std::int64_t> strides(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = reader.number(0, kMost);
    strides[i] = reader.number(0, kMost);
  }
  check_room(sizes, static_cast<at::ScalarType>(type));
  if (is_place_for(place, static_cast<at::ScalarType>(type), sizes, strides)) {
    return place;
  }
  const at::Tensor memory =
      at::empty({offset + c10::multiply_integers(sizes)},
                at::dtype(static_cast<at::ScalarType>(type)));
  at::Tensor tensor = memory.as_strided(sizes, strides, offset);
  if (!tensor.is_non_overlapping_and_dense()) {
    Reader::refuse();
  }
  return tensor.requires_grad_(wants_gradient);
}

}  // namespace

at::Tensor in_one_piece(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  return (values.is_non_overlapping_and_dense() ? values : values.contiguous())
      .requires_grad_(tensor.requires_grad());
}

std::vector<char> seal(const Tag& tag, const Message& message, bool& inside) {
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : message) {
    bytes += tensor.defined() ? tensor.nbytes() : 0;
  }
  inside = bytes <= kFewBytes;
  Writer writer;
  writer.number(static_cast<int>(tag.channel));
  writer.number(tag.index);
  writer.number(tag.microbatch.value);
  writer.number(inside ? 1 : 0);
  writer.number(std::ssize(message));
  for (const at::Tensor& tensor : message) {
    if (!tensor.defined()) {
      writer.number(kUndefined);
      continue;
    }
    writer.number(static_cast<int>(tensor.scalar_type()));
    writer.number(tensor.requires_grad() ? 1 : 0);
    writer.number(offset_of(tensor));
    writer.number(tensor.dim());
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      writer.number(tensor.size(i));
      writer.number(tensor.stride(i));
    }
  }
  for (const at::Tensor& tensor : message) {
    if (inside && tensor.defined()) {
      writer.numbers_of(tensor);
    }
  }
  return writer.take();
}

Envelope unseal(std::string_view bytes, const FindMemory& memory) {
  Reader reader(bytes);
  Envelope envelope;
  envelope.tag.channel =
      static_cast<Channel>(reader.number(0, static_cast<int>(kLastChannel)));
  envelope.tag.index = static_cast<int>(reader.number(0, INT32_MAX));
  envelope.tag.microbatch.value = static_cast<int>(reader.number(0, INT32_MAX));
  envelope.filled = reader.number(0, 1) == 1;
  envelope.tensors.resize(reader.number(0, kMaxTensors));
  Message places = memory ? memory(envelope.tag) : Message{};
  places.resize(envelope.tensors.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    envelope.tensors[i] = read_shape(reader, places[i]);
  }
  for (at::Tensor& tensor : envelope.tensors) {
    if (envelope.filled && tensor.defined()) {
      reader.numbers_of(tensor);
    }
  }
  reader.end();
  return envelope;
}

}  // namespace cleave
