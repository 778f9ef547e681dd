#pragma once

#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"

namespace pando {

/// Base of everything thrown inside a training step. The message says what was wrong and, where
/// there is something to do, what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A caller's mistake: wrong shape, dtype, option. Names the operation and the shapes.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A device's memory budget is exhausted. Names the tensor, its shape and what is left.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Another rank has died or does not answer.
class PeerLost : public Error {
 public:
  using Error::Error;
};

/// A device or a library under it failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A loss, gradient or parameter is infinite or not a number. Names the step and the first bad
/// tensor.
class NonFinite : public Error {
 public:
  using Error::Error;
};

/// Throws InvalidArgument with the concatenated `parts` unless `ok`.
template <typename... Parts>
void Require(bool ok, const Parts&... parts) {
  if (!ok) throw InvalidArgument(absl::StrCat(parts...));
}

}  // namespace pando
