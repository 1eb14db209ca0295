#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/verbs.h"
#include "cleave/device/device.h"
#include "cleave/device/processor.h"
#include "cleave/model/kernels/product_speed.h"

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

// What the user should know of the processor's matrix tiles.
std::string tiles_text(Tiles tiles) {
  switch (tiles) {
    case Tiles::none:
      return "none";
    case Tiles::usable:
      return "AMX";
    case Tiles::broken:
      return "AMX is advertised, but this machine hides its tile palette: not "
             "used (ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16)";
  }
  return "";
}

std::string speed_text(const ProductSpeed& speed) {
  const std::string warning = bf16_warning(speed);
  return gigaflops(speed.fp32) + " GFLOP/s in fp32, " + gigaflops(speed.bf16) +
         " in bf16 (measured on one device)" +
         (warning.empty() ? "" : "\n           " + warning);
}

void print_json(const Machine& machine,
                const Devices& devices,
                const ProductSpeed& speed) {
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
                                      {"tiles", tiles_text(processor_tiles())},
                                      {"fp32_flops", speed.fp32},
                                      {"bf16_flops", speed.bf16},
                                      {"warning", bf16_warning(speed)},
                                      {"devices", list}};
  std::cout << report.dump(2) << '\n';
}

void print_text(const Machine& machine,
                const Devices& devices,
                const ProductSpeed& speed) {
  std::cout << "processor  " << machine.processor << '\n'
            << "cores      " << machine.cores.size()
            << " that this process may use (" << cores_text(machine.cores)
            << ")\n"
            << "memory     " << to_text(machine.memory) << '\n'
            << "GPUs       " << machine.gpus << '\n'
            << "libtorch   " << machine.libtorch << '\n'
            << "tiles      " << tiles_text(processor_tiles()) << '\n'
            << "products   " << speed_text(speed) << '\n'
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
  const ProductSpeed speed = measure_products(devices.front());
  if (arguments.json) {
    print_json(machine, devices, speed);
  } else {
    print_text(machine, devices, speed);
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
