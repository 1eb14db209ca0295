#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string_view>

#include "cleave/cli/config/schema.h"
#include "cleave/cli/exit.h"
#include "cleave/cli/verbs.h"
#include "cleave/device/device.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// Dotted options ("--train.steps 100") belong to the configuration; all others
// to the verb.
struct Arguments {
  std::vector<std::string> verb;
  std::vector<std::string> overrides;
};

bool is_dotted(const std::string& argument) {
  return argument.starts_with("--") &&
         argument.substr(0, argument.find('=')).find('.') != std::string::npos;
}

// True when the option takes the next argument as its value. A boolean stands
// alone in front of a file.
bool takes_next(const std::string& option, const std::string& next) {
  const Key* key = find_key(option.substr(2));
  Config any;
  const bool boolean =
      key != nullptr && std::holds_alternative<bool*>(key->slot(any));
  std::error_code ignored;
  const bool is_file = next.find_first_of("./") != std::string::npos ||
                       std::filesystem::exists(next, ignored);
  return option.find('=') == std::string::npos && !next.starts_with("--") &&
         (!boolean || !is_file);
}

Arguments split_arguments(int count, char** values) {
  const std::vector<std::string> all(values + 1, values + count);
  Arguments arguments;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_dotted(all[i])) {
      arguments.verb.push_back(all[i]);
      continue;
    }
    arguments.overrides.push_back(all[i]);
    if (i + 1 < all.size() && takes_next(all[i], all[i + 1])) {
      arguments.overrides.push_back(all[++i]);
    }
  }
  return arguments;
}

// A key for a verb that reads no configuration would do nothing.
void check_keys(const Arguments& arguments) {
  constexpr std::array<std::string_view, 3> kWithout{
      "quickstart", "devices", "merge"};
  if (arguments.verb.empty() || arguments.overrides.empty()) {
    return;
  }
  const std::string& verb = arguments.verb.front();
  if (std::ranges::find(kWithout, verb) != kWithout.end()) {
    fail("cleave " + verb + " reads no configuration, so " +
             arguments.overrides.front() + " would do nothing",
         "Leave it out; cleave " + verb + " --help has what there is.");
  }
}

int run(int count, char** values) {
  CLI::App program(
      "Cleave splits a neural network over devices, trains it as one, and "
      "joins it back into one file.",
      "cleave");
  program.set_version_flag(
      "--version",
      "cleave " CLEAVE_VERSION " (libtorch " + this_machine().libtorch + ")");
  program.require_subcommand(1);
  program.footer("First time here? Type: cleave quickstart");
  Overrides overrides;
  add_quickstart(program);
  add_devices(program);
  add_plan(program, overrides);
  add_train(program, overrides);
  add_merge(program);
  add_evaluate(program, overrides);
  if (count == 1) {
    std::cout << program.help();
    return 0;
  }
  try {
    Arguments arguments = split_arguments(count, values);
    check_keys(arguments);
    overrides = parse_overrides(arguments.overrides);
    std::reverse(arguments.verb.begin(),
                 arguments.verb.end());  // as CLI11 asks
    program.parse(arguments.verb);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : kUsageError;
  }
  return 0;
}

}  // namespace
}  // namespace cleave

int main(int count, char** values) {
  try {
    return cleave::run(count, values);
  } catch (const cleave::Exit& exit) {
    return exit.code;
  } catch (const cleave::Error& error) {
    std::cerr << "cleave: " << error.what() << '\n';
  } catch (const std::bad_alloc&) {
    std::cerr << "cleave: out of memory. Use a smaller batch or more stages.\n";
  } catch (const std::exception& error) {
    std::cerr << "cleave: " << error.what() << '\n';
  }
  return cleave::kUserError;
}
