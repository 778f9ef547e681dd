#pragma once

#include "tools/pando/train_options.h"
#include "train/data.h"

namespace pando {

/// Opens the data that `options` name, and completes options.gpt by what only files tell: the size
/// of the vocabulary, and with --init-from the whole model. Throws InvalidArgument, naming what is
/// missing or does not fit.
Data OpenRunData(TrainOptions& options);

}  // namespace pando
