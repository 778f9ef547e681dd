#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pando {

/// How a parameter's first value comes about: a function of (seed, parameter's name, element index)
/// alone, so that any shard initialises itself, identically whatever the split and the processor.
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double a = 0;  ///< constant; mean; lower bound
  double b = 0;  ///< unused; standard deviation; upper bound

  static Initializer Constant(double value) { return {Kind::kConstant, value, 0}; }
  static Initializer Zeros() { return Constant(0); }
  static Initializer Ones() { return Constant(1); }
  static Initializer Normal(double mean, double std) { return {Kind::kNormal, mean, std}; }
  static Initializer Uniform(double low, double high) { return {Kind::kUniform, low, high}; }

  /// Writes elements [begin, begin + out.size()) of the parameter `name`.
  void Fill(uint64_t seed, std::string_view name, int64_t begin, std::span<float> out) const;
};

}  // namespace pando
