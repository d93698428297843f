// A plugin's object with its release function: closed exactly once, in the reverse order of opening.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/result.h"

namespace tenon {

template <class T>
using Handle = std::unique_ptr<T, std::function<void(T*)>>;

// Calls open(T** out, tenon_error*) and wraps what comes out.
template <class T, class Open>
Result<Handle<T>> open_handle(const std::string& who, std::function<void(T*)> close, Open&& open) {
  T* out = nullptr;
  tenon_error error = empty_abi_error();
  const tenon_code code = open(&out, &error);
  if (code != TENON_OK) return from_abi(code, error, who);
  return Handle<T>(out, std::move(close));
}

// For an open that is given options of the recipe: what the plugin refuses in them is a mistake of the recipe
// (R005), whose place is that of the options.
template <class T, class Open>
Result<Handle<T>> open_with_options(const std::string& who, const std::string& pointer,
                                    std::function<void(T*)> close, Open&& open) {
  auto opened = open_handle<T>(who, std::move(close), std::forward<Open>(open));
  if (opened.ok() || opened.error().kind != TENON_E_ARGUMENT) return opened;
  return Error{"R005", who + ": " + opened.error().cause, pointer, "", TENON_E_ARGUMENT};
}

}  // namespace tenon
