#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Returns the Status of `expr` from the enclosing function unless it is OK.
#define PANDO_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                               \
    if (absl::Status pando_status = (expr); !pando_status.ok()) return pando_status; \
  } while (0)

/// `lhs = *expr`, where `expr` is a StatusOr; returns its Status from the enclosing function unless
/// it is OK. `lhs` may declare a variable.
#define PANDO_ASSIGN_OR_RETURN(lhs, expr) \
  PANDO_ASSIGN_OR_RETURN_IMPL(PANDO_STATUS_CONCAT(pando_statusor_, __LINE__), lhs, expr)
#define PANDO_STATUS_CONCAT_IMPL(a, b) a##b
#define PANDO_STATUS_CONCAT(a, b) PANDO_STATUS_CONCAT_IMPL(a, b)
// The arguments are names and declarations, which can't be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define PANDO_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
