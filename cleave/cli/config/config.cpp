#include "cleave/cli/config/config.h"

// toml++ costs seconds in every file that includes it: this is the only one.
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <fstream>
#include <iterator>

#include "cleave/cli/config/config_value.h"
#include "cleave/cli/config/schema.h"
#include "cleave/error.h"

namespace cleave {
namespace {

ValuePlace place_of(const toml::source_region& region,
                    const std::string& source) {
  return {.where = source + ":" + std::to_string(region.begin.line)};
}

FoundValue read_node(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return {.value = **node.as_string(), .kind = "a string"};
    case toml::node_type::integer:
      return {.value = **node.as_integer(), .kind = "an integer"};
    case toml::node_type::floating_point:
      return {.value = **node.as_floating_point(), .kind = "a float"};
    case toml::node_type::boolean:
      return {.value = **node.as_boolean(), .kind = "a boolean"};
    case toml::node_type::array:
      return {.value = {}, .kind = "an array"};
    case toml::node_type::table:
      return {.value = {}, .kind = "a table"};
    default:
      return {.value = {}, .kind = "a date or time"};
  }
}

toml::table parse_toml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    fail(source + ":" + std::to_string(at.line) + ":" +
             std::to_string(at.column) +
             ": this is not TOML: " + std::string(error.description()),
         "Correct that line; text needs quotes.");
  }
}

void read_section(const std::string& name,
                  const toml::table& table,
                  const std::string& source,
                  Config& config) {
  for (const auto& [key, node] : table) {
    const ValuePlace place = place_of(key.source(), source);
    const std::string dotted = name + "." + std::string(key.str());
    assign(config, known_key(dotted, place), read_node(node), place);
  }
}

void read_root(const toml::table& root,
               const std::string& source,
               Config& config) {
  for (const auto& [key, node] : root) {
    const ValuePlace place = place_of(key.source(), source);
    const std::string name(key.str());
    if (is_section(name) && !node.is_table()) {
      fail_at(place,
              name + " must be a section, found " + read_node(node).kind,
              "Write [" + name + "] on a line of its own, its keys below.");
    }
    if (!is_section(name) && node.is_table()) {
      fail_at(place, "unknown section " + name, advice_on_section(name));
    }
    if (!is_section(name)) {
      fail_at(place,
              "key " + name + " stands outside every section",
              advice_on_key(name));
    }
    read_section(name, *node.as_table(), source, config);
  }
}

}  // namespace

Config parse_config(std::string_view toml,
                    const std::string& source,
                    const Overrides& overrides) {
  Config config;
  read_root(parse_toml(toml, source), source, config);
  apply(overrides, config);
  return config;
}

Config load_config(const std::filesystem::path& file,
                   const Overrides& overrides) {
  const std::string name = file.string();
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    fail("there is no file " + name, "Check the path of the configuration.");
  }
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file, ignored)) {
    fail("cannot read " + name, "Name a TOML file that you may read.");
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return parse_config(text, name, overrides);
}

}  // namespace cleave
