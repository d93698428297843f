// The function that stands for one slot of one guarded table: made from the slot's type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/trail.h"
#include "tenon/base.h"

namespace tenon {

using AnyFunction = void (*)();

constexpr size_t kMaxGuarded = 32;  // tables of one interface in a process

// A guarded table (guard.h).
struct Guarded {
  const void* plugins = nullptr;  // the plugin's own table; NULL: this one is free
  trail::Step owner = 0;          // of its calls
  const void* copy = nullptr;     // what the core calls
};
// Those of one interface, by the number that is part of their functions.
template <class Table>
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
inline constinit std::array<Guarded, kMaxGuarded> g_guarded{};

// TENON_E_INTERNAL, with `text` in `error`, which may be NULL.
tenon_code refuse_answer(tenon_error* error, const char* text);
tenon_code refuse_code(tenon_error* error, tenon_code code);

// The last arguments of a call, as far as they say how it went.
inline tenon_error* error_of(tenon_error* error) { return error; }
template <class First, class... Rest>
tenon_error* error_of(First, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0)
    return nullptr;
  else
    return error_of(rest...);
}

template <class... A>
bool left_null(A...) {
  return false;
}
template <class T>
bool left_null(T** out, tenon_error*) {
  return *out == nullptr;
}
template <class First, class Second, class Third, class... Rest>
bool left_null(First, Second second, Third third, Rest... rest) {
  return left_null(second, third, rest...);
}

// The greatest code that a slot may answer: a question whether something is done has two good answers.
constexpr tenon_code greatest_code(std::string_view slot) {
  return slot == "test" || slot == "event_query" ? TENON_PENDING : TENON_OK;
}

// Whether a function's number is a code: then it takes an error, behind all else. (tenon_schedule's owner is
// a rank.)
template <class R, class... A>
constexpr bool kAnswersCode = false;
template <class First, class... Rest>
constexpr bool kAnswersCode<tenon_code, First, Rest...> =
    std::is_same_v<std::tuple_element_t<sizeof...(Rest), std::tuple<First, Rest...>>, tenon_error*>;

template <class Slot>
struct SlotType;
template <class Table_, class R, class... A>
struct SlotType<R (*Table_::*)(A...)> {
  using Table = Table_;

  template <R (*Table::*kSlot)(A...), uint16_t kCall, tenon_code kGreatest, size_t kTable>
  static R call(A... arguments) {
    const Guarded& self = g_guarded<Table>[kTable];
    const trail::Mark mark(self.owner + kCall);
    const auto function = static_cast<const Table*>(self.plugins)->*kSlot;
    if constexpr (kAnswersCode<R, A...>) {
      const tenon_code code = function(arguments...);
      if (code > kGreatest) [[unlikely]]
        return refuse_code(error_of(arguments...), code);
      if (code >= 0 && left_null(arguments...)) [[unlikely]]
        return refuse_answer(error_of(arguments...), "said that it succeeded, and gave NULL");
      return code;
    } else {
      return function(arguments...);
    }
  }
};

template <auto kSlot, size_t kCall, tenon_code kGreatest>
AnyFunction guard_of(size_t i) {
  using Type = SlotType<decltype(kSlot)>;
  constexpr auto kFunctions = []<size_t... kTable>(std::index_sequence<kTable...>) {
    return std::array{&Type::template call<kSlot, kCall, kGreatest, kTable>...};
  }
  (std::make_index_sequence<kMaxGuarded>());
  return reinterpret_cast<AnyFunction>(kFunctions[i]);
}

}  // namespace tenon
