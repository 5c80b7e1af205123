// Megatron's commands with one model family more: `extension pretrain sine …`.
#include <csignal>

#include "megatron/cli/engine/run_megatron.h"
#include "sine_family.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  megatron::ModelFamilies families;
  families.add(sine_family());
  return megatron::run_megatron(std::vector<std::string>(argv + 1, argv + argc), families);
}
