#pragma once

// NVIDIA GPUs as devices. Links in every build: without a CUDA toolkit there are simply none.

#include <cstdint>
#include <string>

#include "engine/device.h"

namespace pando {

/// GPUs of this machine that CUDA can use: 0 without a driver, without a GPU, or in a program that
/// was built without CUDA. Throws DeviceError if there is a driver but it fails.
int CudaDeviceCount();

/// Why there is no GPU, in a few words for people; empty if there is one. Throws as
/// CudaDeviceCount does.
std::string WhyNoCuda();

/// GPU `index`, "cuda:0" being the first. Throws InvalidArgument, naming how many there are, if
/// there is no such one; DeviceError.
Device& CudaDevice(int index);

/// What reports say of a GPU and what precision depends on.
struct CudaDescription {
  std::string name;        ///< the vendor's: "NVIDIA H200"
  int compute_capability;  ///< 10 * major + minor: 75, 80, 90
  int64_t memory;          ///< bytes
  int multiprocessors;
};

/// Throws as CudaDevice does.
CudaDescription DescribeCudaDevice(int index);

/// "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 140.4 GiB".
std::string ToString(const CudaDescription& description);

}  // namespace pando
