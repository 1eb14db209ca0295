#include "cleave/checkpoint/safetensors_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

using Json = nlohmann::json;

// Follows the parser from token to token. The document model of the library
// would not do: it keeps the last of two equal keys without a word and turns
// integers beyond 64 bits into floats.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& source) : source_(source) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t /*elements*/) override;
  bool key(std::string& key) override;
  bool end_object() override;
  bool start_array(std::size_t /*elements*/) override;
  bool end_array() override;
  bool string(std::string& value) override;
  bool number_unsigned(std::uint64_t value) override;

  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("true or false"); }
  bool number_integer(std::int64_t /*value*/) override {
    unexpected("a negative number");
  }
  bool number_float(double /*value*/, const std::string& text) override {
    unexpected("the number " + shown(text) +
               ", which is no integer of at most 48 bits");
  }
  bool binary(Json::binary_t& /*value*/) override { unexpected("bytes"); }
  bool parse_error(std::size_t position,
                   const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*problem*/) override {
    refuse("the header is no valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place { outside, names, metadata, entry, shape, offsets };

  [[noreturn]] void refuse(const std::string& problem) const {
    fail_in_file(source_, problem);
  }
  [[noreturn]] void unexpected(const std::string& what) const;
  void begin_entry(const std::string& name);
  void begin_field(const std::string& name);
  void check_complete() const;
  SafetensorsEntry& entry() { return header_.entries.back(); }

  const std::string& source_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::unordered_set<std::string> names_;  // seen so far, also "__metadata__"
  std::set<std::string> fields_;           // seen so far in the entry
  std::string key_;                        // the one whose value comes next
  std::vector<std::uint64_t> offsets_;
};

void HeaderReader::unexpected(const std::string& what) const {
  switch (place_) {
    case Place::outside:
      refuse("the header is " + what + ", not an object");
    case Place::names:
      refuse("the header holds " + what + " under " + shown(key_) +
             ", not an object");
    case Place::metadata:
      refuse("the metadata hold " + what + " under " + shown(key_) +
             ", not a string");
    case Place::entry:
    case Place::shape:
    case Place::offsets:
      refuse("tensor " + shown(header_.entries.back().name) + " has " + what +
             " in its " + shown(key_));
  }
  refuse("the header holds " + what);
}

bool HeaderReader::start_object(std::size_t /*elements*/) {
  if (place_ == Place::outside) {
    place_ = Place::names;
  } else if (place_ == Place::names) {
    place_ = key_ == kSafetensorsMetadata ? Place::metadata : Place::entry;
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderReader::key(std::string& key) {
  key_ = key;
  if (place_ == Place::names) {
    begin_entry(key);
  } else if (place_ == Place::entry) {
    begin_field(key);
  } else if (!header_.metadata.try_emplace(key).second) {
    refuse("the metadata hold " + shown(key) + " twice");
  }
  return true;
}

void HeaderReader::begin_entry(const std::string& name) {
  if (!names_.insert(name).second) {
    refuse("the header holds " + shown(name) + " twice");
  }
  if (name == kSafetensorsMetadata) {
    return;
  }
  if (header_.entries.size() == kMaxSafetensorsTensors) {
    refuse("the header holds more than " +
           std::to_string(kMaxSafetensorsTensors) + " tensors");
  }
  header_.entries.emplace_back().name = name;
  fields_.clear();
}

void HeaderReader::begin_field(const std::string& name) {
  if (name != "dtype" && name != "shape" && name != "data_offsets") {
    refuse("tensor " + shown(entry().name) + " has an unknown field " +
           shown(name));
  }
  if (!fields_.insert(name).second) {
    refuse("tensor " + shown(entry().name) + " has two fields " + shown(name));
  }
}

void HeaderReader::check_complete() const {
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!fields_.contains(field)) {
      refuse("tensor " + shown(header_.entries.back().name) + " has no " +
             shown(field));
    }
  }
}

bool HeaderReader::end_object() {
  if (place_ == Place::entry) {
    check_complete();
  }
  place_ = place_ == Place::names ? Place::outside : Place::names;
  return true;
}

bool HeaderReader::start_array(std::size_t /*elements*/) {
  if (place_ == Place::entry && key_ == "shape") {
    place_ = Place::shape;
  } else if (place_ == Place::entry && key_ == "data_offsets") {
    place_ = Place::offsets;
    offsets_.clear();
  } else {
    unexpected("an array");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::offsets) {
    if (offsets_.size() != 2) {
      refuse("tensor " + shown(entry().name) + " has " +
             std::to_string(offsets_.size()) + " data_offsets, not 2");
    }
    entry().begin = offsets_[0];
    entry().end = offsets_[1];
  }
  place_ = Place::entry;
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (place_ == Place::metadata) {
    header_.metadata[key_] = std::move(value);
  } else if (place_ == Place::entry && key_ == "dtype") {
    entry().dtype = std::move(value);
  } else {
    unexpected("a string");
  }
  return true;
}

bool HeaderReader::number_unsigned(std::uint64_t value) {
  if (place_ != Place::shape && place_ != Place::offsets) {
    unexpected("a number");
  }
  if (value > kMaxSafetensorsInteger) {
    unexpected("the number " + std::to_string(value) +
               ", which is no integer of at most 48 bits");
  }
  if (place_ == Place::offsets) {
    offsets_.push_back(value);
  } else if (entry().shape.size() == kMaxSafetensorsDimensions) {
    refuse("tensor " + shown(entry().name) + " has more than " +
           std::to_string(kMaxSafetensorsDimensions) + " dimensions");
  } else {
    entry().shape.push_back(static_cast<std::int64_t>(value));
  }
  return true;
}

template <typename Numbers>
std::string array_text(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return "[" + text + "]";
}

// Throws Json::type_error where the text is not UTF-8.
std::string string_text(const std::string& text) {
  return Json(text).dump();
}

std::string entry_text(const SafetensorsEntry& entry) {
  return string_text(entry.name) + ":{\"dtype\":" + string_text(entry.dtype) +
         ",\"shape\":" + array_text(entry.shape) +
         ",\"data_offsets\":" + array_text(std::array{entry.begin, entry.end}) +
         "}";
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  return string_text(kSafetensorsMetadata) + ":" + Json(metadata).dump();
}

}  // namespace

SafetensorsHeader read_safetensors_json(std::string_view json,
                                        const std::string& source) {
  // The format says "MUST begin with {". The reference reader also takes white
  // space before it; we do not, nor the byte-order mark our parser would skip.
  if (!json.starts_with('{')) {
    fail_in_file(source, "the header does not begin with '{'");
  }
  // Our parser takes this byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) {
    fail_in_file(source, "the header holds a zero byte");
  }
  HeaderReader reader(source);
  Json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

std::string write_safetensors_json(const SafetensorsHeader& header,
                                   const std::string& source) {
  std::string json = "{";
  try {
    if (!header.metadata.empty()) {
      json += metadata_text(header.metadata);
    }
    for (const SafetensorsEntry& entry : header.entries) {
      json += (json.size() == 1 ? "" : ",") + entry_text(entry);
    }
  } catch (const Json::type_error&) {
    fail(source + ": a tensor's name or the metadata are not UTF-8",
         "Use plain text.");
  }
  return json + "}";
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 80;
  constexpr int kNoIndent = -1;
  constexpr bool kOnlyAscii = true;
  const std::string part(name.substr(0, kMost));
  return Json(part).dump(
             kNoIndent, ' ', kOnlyAscii, Json::error_handler_t::replace) +
         (name.size() > kMost ? "..." : "");
}

void fail_in_file(const std::string& source,
                  const std::string& problem,
                  const char* file,
                  int line) {
  fail(source + ": " + problem,
       "The file is damaged or forged: fetch or make it again.",
       file,
       line);
}

}  // namespace cleave
