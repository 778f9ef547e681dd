#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/parameter.h"

namespace pando {

class Scope;

/// All parameters of a model, in the order of their declaration.
class ParameterRegistry {
 public:
  ParameterRegistry() = default;
  ParameterRegistry(const ParameterRegistry&) = delete;
  ParameterRegistry& operator=(const ParameterRegistry&) = delete;

  /// The scope of the model itself.
  Scope Root();
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// The parameter of that full name, or null.
  Parameter* Find(const std::string& name) const;
  /// Elements of all parameters together.
  int64_t numel() const;

 private:
  friend class Parameter;
  void Add(Parameter* parameter);

  std::vector<Parameter*> parameters_;
  std::map<std::string, Parameter*> by_name_;
};

/// Where a module stands: its registry and its full name. Modules pass children's scopes down, so
/// no parameter can be forgotten, and names come out as the field knows them ("h.0.ln_1.weight").
class Scope {
 public:
  /// The scope of a child: this name, a dot, `name`.
  Scope operator/(const std::string& name) const {
    return Scope(registry_, path_.empty() ? name : path_ + "." + name);
  }
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }
  /// Full name; empty for the model itself.
  const std::string& path() const { return path_; }
  ParameterRegistry& registry() const { return *registry_; }

 private:
  friend class ParameterRegistry;
  Scope(ParameterRegistry* registry, std::string path)
      : registry_(registry), path_(std::move(path)) {}

  ParameterRegistry* registry_;
  std::string path_;
};

/// Base of layers and models: remembers its scope. Immovable, because its parameters are.
class Module {
 public:
  explicit Module(Scope scope) : scope_(std::move(scope)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Scope& scope() const { return scope_; }
  /// Full name, as in "h.0.attn".
  const std::string& name() const { return scope_.path(); }

 private:
  Scope scope_;
};

/// Modules of one type, named 0, 1, 2, ... within a scope.
template <typename T>
class ModuleList {
 public:
  /// Constructs `count` modules as T(scope / i, args...).
  template <typename... Args>
  ModuleList(const Scope& scope, int64_t count, const Args&... args) {
    for (int64_t i = 0; i < count; ++i) items_.push_back(std::make_unique<T>(scope / i, args...));
  }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  T& operator[](int64_t i) { return *items_.at(static_cast<size_t>(i)); }
  const T& operator[](int64_t i) const { return *items_.at(static_cast<size_t>(i)); }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace pando
