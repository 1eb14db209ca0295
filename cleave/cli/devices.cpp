#include "cleave/comm/devices.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/verbs.h"

namespace cleave {
namespace {

struct DevicesArguments {
  std::string use;
  bool json = false;
};

std::string cores_text(const std::vector<int>& cores) {
  std::string text;
  for (const int core : cores) {
    text += (text.empty() ? "" : ",") + std::to_string(core);
  }
  return text;
}

void print_json(const Machine& machine, const Devices& devices) {
  nlohmann::ordered_json list = nlohmann::json::array();
  for (const Device& device : devices) {
    list.push_back({{"name", device.name},
                    {"cores", device.cores},
                    {"threads", device.threads}});
  }
  const nlohmann::ordered_json report{{"processor", machine.processor},
                                      {"cores", machine.cores},
                                      {"memory_bytes", machine.memory.value},
                                      {"gpus", machine.gpus},
                                      {"libtorch", machine.libtorch},
                                      {"devices", list}};
  std::cout << report.dump(2) << '\n';
}

void print_text(const Machine& machine, const Devices& devices) {
  std::cout << "processor  " << machine.processor << '\n'
            << "cores      " << machine.cores.size()
            << " that this process may use (" << cores_text(machine.cores)
            << ")\n"
            << "memory     " << to_text(machine.memory) << '\n'
            << "GPUs       " << machine.gpus << '\n'
            << "libtorch   " << machine.libtorch << '\n'
            << "devices    ";
  for (size_t i = 0; i < devices.size(); ++i) {
    std::cout << (i == 0 ? "" : "           ") << devices[i].name << ": core"
              << (devices[i].cores.size() == 1 ? " " : "s ")
              << cores_text(devices[i].cores) << ", " << devices[i].threads
              << (devices[i].threads == 1 ? " thread\n" : " threads\n");
  }
  if (devices.size() > machine.cores.size()) {
    std::cout << "           There are more devices than cores: they take "
                 "turns.\n";
  }
}

void show(const DevicesArguments& arguments) {
  const Machine machine = this_machine();
  const std::string use = arguments.use.empty()
                              ? "cpu:" + std::to_string(machine.cores.size())
                              : arguments.use;
  const Devices devices = local_devices(use);
  if (arguments.json) {
    print_json(machine, devices);
  } else {
    print_text(machine, devices);
  }
}

}  // namespace

void add_devices(CLI::App& program) {
  auto arguments = std::make_shared<DevicesArguments>();
  CLI::App* verb =
      program.add_subcommand("devices", "Show the devices of this machine");
  verb->add_option("--use",
                   arguments->use,
                   "Devices to show, as devices.use names them: cpu:4");
  verb->add_flag("--json", arguments->json, "Print JSON");
  verb->callback([arguments] { show(*arguments); });
}

}  // namespace cleave
