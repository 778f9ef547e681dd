// Writes the training windows and the initial weights of a run of `pando train`, for a peer that is
// to learn from the same: shakespeare_torch.py.

#include <exception>
#include <iostream>

#include "tools/golden/training_inputs.h"

int main(int argc, char** argv) try {
  pando::TrainOptions options;
  std::string windows, init;
  CLI::App app("Writes what a run of `pando train` sees. Takes its options, and:", "dump_inputs");
  app.add_option("--windows", windows, "file of window starts to write")->required();
  app.add_option("--init", init, "safetensors file of initial weights to write")->required();
  pando::AddTrainOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  pando::CompleteTrainOptions(app, options);
  pando::WriteTrainingInputs(options, windows, init);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "dump_inputs: " << e.what() << "\n";
  return 1;
}
