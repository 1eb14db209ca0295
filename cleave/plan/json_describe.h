#pragma once

#include <climits>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cleave/ids.h"
#include "cleave/plan/json_fields.h"

// A struct and its JSON are one description: describe(fields, value) names
// every key with its member once, and is run to write, to read, and to know the
// keys. For the sources of this folder only.
namespace cleave {

// A struct to describe, to be read or to be written.
template <class Given, class Struct>
concept Either = std::same_as<std::remove_const_t<Given>, Struct>;

struct KeyCollector {
  JsonKeys keys;

  template <class Member>
  void operator()(const char* key, Member&, std::int64_t = 0) {
    keys.emplace_back(key);
  }
  template <class Member>
  void optional(const char* key, Member&) {
    keys.emplace_back(key);
  }
};

class JsonWriter {
 public:
  template <class Member>
  void operator()(const char* key, const Member& member, std::int64_t = 0) {
    json_[key] = value(member);
  }
  // Left out where it is as in a value that was not read.
  template <class Member>
  void optional(const char* key, const Member& member) {
    if (!(member == Member{})) {
      json_[key] = value(member);
    }
  }

  Json take() { return std::move(json_); }

 private:
  static Json value(bool truth) { return truth; }
  static Json value(int number) { return number; }
  static Json value(std::int64_t number) { return number; }
  static Json value(const std::string& text) { return text; }
  static Json value(Bytes bytes) { return bytes.value; }
  static Json value(Seconds time) { return to_milliseconds(time); }
  static Json value(Rank rank) { return rank.value; }
  static Json value(StageId stage) { return stage.value; }

  template <class Item>
  static Json value(const std::vector<Item>& items) {
    Json list = Json::array();
    for (const Item& item : items) {
      list.push_back(value(item));
    }
    return list;
  }

  template <class Struct>
  static Json value(const std::optional<Struct>& some) {
    return some ? value(*some) : Json();
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  static Json value(const Struct& some) {
    JsonWriter writer;
    describe(writer, some);
    return writer.take();
  }

  Json json_ = Json::object();
};

template <class Struct>
Struct read_struct(const Json& json,
                   const std::string& source,
                   const std::string& path);

class JsonReader {
 public:
  JsonReader(const Json& json,
             std::string source,
             std::string path,
             const JsonKeys& keys)
      : source_(source),
        fields_(json, std::move(source), std::move(path), keys) {}

  // `least`: of a number.
  template <class Member>
  void operator()(const char* key, Member& member, std::int64_t least = 0) {
    read(key, member, least);
  }
  template <class Member>
  void optional(const char* key, Member& member) {
    if (fields_.has(key)) {
      read(key, member, 0);
    }
  }

 private:
  void read(const char* key, bool& truth, std::int64_t) {
    truth = fields_.truth(key);
  }
  void read(const char* key, int& number, std::int64_t least) {
    number = static_cast<int>(fields_.whole(key, least, INT_MAX));
  }
  void read(const char* key, std::int64_t& number, std::int64_t least) {
    number = fields_.whole(key, least);
  }
  void read(const char* key, std::string& text, std::int64_t) {
    text = fields_.text(key);
  }
  void read(const char* key, std::vector<std::string>& texts, std::int64_t) {
    texts = fields_.texts(key);
  }
  void read(const char* key, Bytes& bytes, std::int64_t least) {
    bytes.value = fields_.whole(key, least);
  }
  void read(const char* key, Seconds& time, std::int64_t) {
    time = fields_.milliseconds(key);
  }
  void read(const char* key, Rank& rank, std::int64_t) {
    rank.value = static_cast<int>(fields_.whole(key, 0, INT_MAX));
  }
  void read(const char* key, StageId& stage, std::int64_t) {
    stage.value = static_cast<int>(fields_.whole(key, 0, INT_MAX));
  }
  void read(const char* key,
            std::vector<std::vector<std::string>>& lists,
            std::int64_t) {
    lists = fields_.lists_of_texts(key);
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  void read(const char* key, std::vector<Struct>& list, std::int64_t) {
    for (const auto& [item, path] : fields_.items(key)) {
      list.push_back(read_struct<Struct>(*item, source_, path));
    }
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  void read(const char* key, std::optional<Struct>& some, std::int64_t) {
    some = read_struct<Struct>(
        fields_.object_at(key), source_, fields_.path_of(key));
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  void read(const char* key, Struct& some, std::int64_t) {
    some = read_struct<Struct>(
        fields_.object_at(key), source_, fields_.path_of(key));
  }

  std::string source_;
  JsonFields fields_;
};

template <class Struct>
Json to_json_of(const Struct& some) {
  JsonWriter writer;
  describe(writer, some);
  return writer.take();
}

template <class Struct>
Struct read_struct(const Json& json,
                   const std::string& source,
                   const std::string& path) {
  Struct some;
  KeyCollector collector;
  describe(collector, some);
  JsonReader reader(json, source, path, collector.keys);
  describe(reader, some);
  return some;
}

}  // namespace cleave
