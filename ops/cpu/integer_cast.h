#pragma once

#include "ops/kernels/copy.h"

namespace pando::PANDO_ISA {

// See IntegerCastArgs.
void IntegerCast(const IntegerCastArgs& args, void* stream);

}  // namespace pando::PANDO_ISA
