#include "cleave/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "cleave/atomic_file.h"
#include "cleave/checkpoint/safetensors_file.h"
#include "cleave/checkpoint/safetensors_json.h"
#include "cleave/error.h"

namespace cleave {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

struct TorchDtype {
  std::string_view name;
  at::ScalarType type;
};

constexpr std::array kTorchDtypes{
    TorchDtype{"BOOL", at::kBool},
    TorchDtype{"U8", at::kByte},
    TorchDtype{"I8", at::kChar},
    TorchDtype{"I16", at::kShort},
    TorchDtype{"I32", at::kInt},
    TorchDtype{"I64", at::kLong},
    TorchDtype{"U16", at::kUInt16},
    TorchDtype{"U32", at::kUInt32},
    TorchDtype{"U64", at::kUInt64},
    TorchDtype{"F16", at::kHalf},
    TorchDtype{"BF16", at::kBFloat16},
    TorchDtype{"F32", at::kFloat},
    TorchDtype{"F64", at::kDouble},
    TorchDtype{"C64", at::kComplexFloat},
    TorchDtype{"F8_E5M2", at::kFloat8_e5m2},
    TorchDtype{"F8_E4M3", at::kFloat8_e4m3fn},
    TorchDtype{"F8_E8M0", at::kFloat8_e8m0fnu},
    TorchDtype{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    TorchDtype{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
};

at::ScalarType torch_dtype(const SafetensorsEntry& entry,
                           const std::string& source) {
  for (const TorchDtype& dtype : kTorchDtypes) {
    if (dtype.name == entry.dtype) {
      return dtype.type;
    }
  }
  fail(source + ": tensor " + shown(entry.name) + " has the dtype " +
           entry.dtype + ", which is not supported",
       "Convert the tensor to one that libtorch has, such as F32.");
}

std::string file_dtype(const at::Tensor& tensor) {
  for (const TorchDtype& dtype : kTorchDtypes) {
    if (dtype.type == tensor.scalar_type()) {
      return std::string(dtype.name);
    }
  }
  return "";
}

SafetensorsEntry entry_for(const std::string& name,
                           const at::Tensor& tensor,
                           const std::string& source) {
  const std::string start =
      "cannot write " + source + ": tensor " + shown(name) + " ";
  if (!tensor.defined() || tensor.is_meta()) {
    fail(start + "holds no values", "Give it some, or leave it out.");
  }
  if (tensor.layout() != at::kStrided) {
    fail(start + "is not dense", "Convert it with .to_dense().");
  }
  const std::string dtype = file_dtype(tensor);
  if (dtype.empty()) {
    fail(start + "has the dtype " + std::string(tensor.dtype().name()) +
             ", which the format lacks",
         "Convert it, for example to torch::kFloat32.");
  }
  return {.name = name, .dtype = dtype, .shape = tensor.sizes().vec()};
}

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// The values as they lie in a file: on the CPU, row-major, no lazy bits set.
at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

// A byte other than 0 and 1 in a bool is undefined behaviour in C++.
void check_bools(std::span<const std::byte> bytes,
                 const SafetensorsEntry& entry,
                 const std::string& source) {
  if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) {
        return b > std::byte{1};
      })) {
    fail_in_file(source,
                 "tensor " + shown(entry.name) +
                     " is of dtype BOOL but has values other than 0 and 1");
  }
}

// Without waiting, as opening a named pipe would.
int open_to_read(const std::filesystem::path& file) {
  return open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

[[noreturn]] void fail_to_read(const std::filesystem::path& file,
                               const std::string& why) {
  fail("cannot read " + file.string() + ": " + why, "Check the path.");
}

}  // namespace

void save_safetensors(const TensorMap& tensors,
                      const std::filesystem::path& file,
                      const std::map<std::string, std::string>& metadata) {
  const std::string source = file.string();
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    header.entries.push_back(entry_for(name, tensor, source));
    by_name.emplace(name, &tensor);
  }
  header = laid_out(std::move(header), source);
  const std::string start = to_file_start(header, source);
  AtomicFile out(file);
  out.write(start);
  for (const SafetensorsEntry& entry : header.entries) {
    out.write(memory_of(plain(*by_name.at(entry.name))));
  }
  out.commit();
}

LoadedTensors load_safetensors(const std::filesystem::path& file) {
  const SafetensorsFile in(file);
  LoadedTensors loaded{.tensors = {}, .metadata = in.header().metadata};
  for (const SafetensorsEntry& entry : in.header().entries) {
    loaded.tensors.emplace_back(entry.name, in.read(entry));
  }
  return loaded;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path file)
    : file_(std::move(file)), descriptor_(open_to_read(file_)) {
  if (descriptor_ < 0) {
    fail_to_read(file_, std::generic_category().message(errno));
  }
  try {
    header_ = read_header();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  close(descriptor_);
}

SafetensorsHeader SafetensorsFile::read_header() {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    fail_to_read(file_, "not a regular file");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string prefix(std::min(size, kSafetensorsPrefix), '\0');
  read_bytes(0, std::as_writable_bytes(std::span(prefix)));
  const std::uint64_t length =
      safetensors_header_length(prefix, size, file_.string());
  std::string json(length, '\0');
  read_bytes(kSafetensorsPrefix, std::as_writable_bytes(std::span(json)));
  data_begin_ = kSafetensorsPrefix + length;
  return parse_safetensors_header(json, size, file_.string());
}

at::Tensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  const at::ScalarType dtype = torch_dtype(entry, file_.string());
  const bool is_bool = dtype == at::kBool;
  at::Tensor tensor = at::empty(entry.shape, is_bool ? at::kByte : dtype);
  const std::span<std::byte> memory = memory_of(tensor);
  read_bytes(data_begin_ + entry.begin, memory);
  if (is_bool) {
    check_bools(memory, entry, file_.string());
    tensor = tensor.view(at::kBool);
  }
  return tensor;
}

void SafetensorsFile::read_bytes(std::uint64_t begin,
                                 std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got =
        pread(descriptor_, to.data(), to.size(), static_cast<off_t>(begin));
    if (got > 0) {
      to = to.subspan(static_cast<std::size_t>(got));
      begin += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      fail_to_read(file_, "it became shorter while it was read");
    } else if (errno != EINTR) {
      fail_to_read(file_, std::generic_category().message(errno));
    }
  }
}

}  // namespace cleave
