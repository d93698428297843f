// Errors as values. Result<T> holds a T or an Error; TENON_TRY passes an error on.
// An Error names its code (docs/reference/errors.md), the place, the cause and the fix.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "tenon/base.h"

namespace tenon {

struct Error {
  std::string code;   // "R002": a letter for the family, three digits; stable, documented
  std::string cause;  // what is wrong, with the offending value
  std::string
      place;  // "recipe.lua:28:5", a file, a tensor, an instruction; an excerpt may follow; may be empty
  std::string fix;  // what to do; may be empty
  tenon_code kind = TENON_E_UNKNOWN;

  // "error[R002]: <cause>\n  --> <place>\n  fix: <fix>"
  std::string text() const;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// What a plugin said through the C ABI, with who said it as the place. `code` is any but TENON_OK: one that
// base.h does not list, or that is no error, is of kind TENON_E_INTERNAL, and told.
Error from_abi(tenon_code code, const tenon_error& error, const std::string& who);
// Fills a caller's tenon_error (may be NULL), as much as there is room for, and returns its code.
tenon_code to_abi(const Error& error, tenon_error* out);
tenon_error empty_abi_error();

#define TENON_CONCAT_INNER(a, b) a##b
#define TENON_CONCAT(a, b) TENON_CONCAT_INNER(a, b)
// TENON_TRY(auto x, f()): declares x from the value, or returns the error.
#define TENON_TRY(declaration, expression) \
  TENON_TRY_INNER(declaration, expression, TENON_CONCAT(tenon_result_, __LINE__))
#define TENON_TRY_INNER(declaration, expression, name) \
  auto name = (expression);                            \
  if (!name.ok()) return std::move(name).error();      \
  declaration = std::move(name).value()
// TENON_CHECK(f()): returns the error of a call without a value.
#define TENON_CHECK(expression)                                     \
  do {                                                              \
    auto tenon_status = (expression);                               \
    if (!tenon_status.ok()) return std::move(tenon_status).error(); \
  } while (false)

}  // namespace tenon
