#include "cleave/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <system_error>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
constexpr int kMaxDimensions = 4;
constexpr std::uint8_t kTypeByte = 0x08;
// What deflate can make of a byte: a match is 258 bytes in at least two bits.
constexpr std::uint64_t kMaxDeflateRatio = 1032;
constexpr const char* kFix = "Fetch the file again.";

bool is_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

// The unpacked bytes, from first to last: inflates as they are asked for, so
// that a short file that unpacks to a huge one costs nothing before it is
// refused.
class Unpacked {
 public:
  Unpacked(std::span<const std::uint8_t> bytes, const std::string& source)
      : all_(bytes), rest_(bytes), source_(source), packed_(is_gzip(bytes)) {
    if (packed_ && inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      fail("cannot set up zlib to read " + source_, "");
    }
  }
  ~Unpacked() {
    if (packed_) {
      inflateEnd(&stream_);
    }
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

  // Fills `to`, and returns how much of it there was.
  std::size_t read(std::span<std::uint8_t> to) {
    return packed_ ? inflate_into(to) : copy_into(to);
  }

  // All there is cannot be more than this.
  std::uint64_t most() const {
    return packed_ ? kMaxDeflateRatio * all_.size() : all_.size();
  }

  // True if bytes follow the end of the gzip stream. A second stream would be
  // legal gzip, but no writer of these files makes one.
  bool has_bytes_behind() const { return packed_ && !rest_.empty(); }

 private:
  static constexpr int kGzipOnly = 15 + 16;  // largest window; no zlib header

  std::size_t copy_into(std::span<std::uint8_t> to) {
    const std::size_t count = std::min(to.size(), rest_.size());
    std::copy_n(rest_.begin(), count, to.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

  std::size_t inflate_into(std::span<std::uint8_t> to);

  std::span<const std::uint8_t> all_;
  std::span<const std::uint8_t> rest_;
  const std::string& source_;
  bool packed_;
  bool ended_ = false;
  z_stream stream_{};
};

std::size_t Unpacked::inflate_into(std::span<std::uint8_t> to) {
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  std::size_t done = 0;
  while (done < to.size() && !ended_) {
    const auto in = static_cast<uInt>(std::min(rest_.size(), kMost));
    const auto out = static_cast<uInt>(std::min(to.size() - done, kMost));
    // zlib only reads what next_in points to, const or not.
    stream_.next_in = const_cast<Bytef*>(rest_.data());
    stream_.avail_in = in;
    stream_.next_out = to.data() + done;
    stream_.avail_out = out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    rest_ = rest_.subspan(in - stream_.avail_in);
    done += out - stream_.avail_out;
    if (status == Z_BUF_ERROR) {
      fail(source_ + " ends in the middle of its gzip stream", kFix);
    }
    if (status != Z_OK && status != Z_STREAM_END) {
      const char* why = stream_.msg != nullptr ? stream_.msg : "bad stream";
      fail(source_ + " is damaged: gzip says '" + why + "'", kFix);
    }
    ended_ = status == Z_STREAM_END;
  }
  return done;
}

std::uint32_t big_endian(std::span<const std::uint8_t, 4> bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

std::array<std::uint8_t, 4> next_four(Unpacked& bytes,
                                      const std::string& source) {
  std::array<std::uint8_t, 4> four{};
  if (bytes.read(four) != four.size()) {
    fail(source + " ends within its header", kFix);
  }
  return four;
}

int read_dimensions(Unpacked& bytes, const std::string& source) {
  const std::array<std::uint8_t, 4> magic = next_four(bytes, source);
  if (magic[0] != 0 || magic[1] != 0) {
    fail(source + " is no IDX file: it does not begin with two zero bytes",
         "Name a file of the MNIST family.");
  }
  if (magic[2] != kTypeByte) {
    fail(source + " holds values of IDX type " + std::to_string(magic[2]) +
             "; only bytes (type 8) are read",
         "Convert it to bytes.");
  }
  const int dimensions = magic[3];
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    fail(source + " claims " + std::to_string(dimensions) + " dimensions",
         "An array must have 1 to " + std::to_string(kMaxDimensions) + ".");
  }
  return dimensions;
}

// Also the number of values, which is checked before any memory is taken.
std::uint64_t read_shape(Unpacked& bytes,
                         const std::string& source,
                         std::vector<std::int64_t>& shape) {
  const int dimensions = read_dimensions(bytes, source);
  std::uint64_t values = 1;
  for (int i = 0; i < dimensions; ++i) {
    const std::uint32_t size = big_endian(next_four(bytes, source));
    if (size == 0) {
      fail(source + " holds an array with a dimension of size 0", kFix);
    }
    if (size > kMaxBytes / values) {
      fail(source + " claims more than 1 GiB of values", kFix);
    }
    values *= size;
    shape.push_back(size);
  }
  return values;
}

}  // namespace

IdxArray parse_idx(std::span<const std::uint8_t> bytes,
                   const std::string& source) {
  Unpacked unpacked(bytes, source);
  IdxArray array;
  const std::uint64_t count = read_shape(unpacked, source, array.shape);
  const std::string claim =
      source + " claims " + std::to_string(count) + " values but ";
  if (count > unpacked.most()) {
    fail(claim + "is too short for them", kFix);
  }
  array.values.resize(count);
  const std::size_t got = unpacked.read(array.values);
  if (got != count) {
    fail(claim + "holds " + std::to_string(got), kFix);
  }
  std::array<std::uint8_t, 1> extra{};
  if (unpacked.read(extra) != 0) {
    fail(claim + "holds more", kFix);
  }
  if (unpacked.has_bytes_behind()) {
    fail(source + " has bytes behind the end of its gzip stream", kFix);
  }
  return array;
}

IdxArray read_idx(const std::filesystem::path& file) {
  const std::string source = file.string();
  std::error_code problem;
  const std::uint64_t size = std::filesystem::file_size(file, problem);
  if (problem) {
    fail("cannot read " + source + ": " + problem.message(), "Check the path.");
  }
  if (size > kMaxBytes) {
    fail(source + " is larger than 1 GiB", "Name a file of the MNIST family.");
  }
  std::vector<std::uint8_t> bytes(size);
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()),
          static_cast<std::streamsize>(size));
  if (!in || in.gcount() != static_cast<std::streamsize>(size)) {
    fail("cannot read " + source, "Check that you may read it.");
  }
  return parse_idx(bytes, source);
}

}  // namespace cleave
