// Invariants: what holds whatever a recipe, a plugin or a file says, or the code is wrong. Mistakes of those
// are errors (base/result.h), never assertions. Checked in debug and sanitizer builds; a release build
// compiles the condition and never evaluates it.
#pragma once

namespace tenon {

// Names the condition and its place on standard error, and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

#if defined(__has_feature)
#define TENON_HAS_FEATURE(x) __has_feature(x)
#else
#define TENON_HAS_FEATURE(x) 0
#endif
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    TENON_HAS_FEATURE(address_sanitizer) || TENON_HAS_FEATURE(thread_sanitizer)
constexpr bool kAssertions = true;
#else
constexpr bool kAssertions = false;
#endif
#undef TENON_HAS_FEATURE

}  // namespace tenon

#define TENON_ASSERT(condition)                                \
  (!::tenon::kAssertions || (condition) ? static_cast<void>(0) \
                                        : ::tenon::assertion_failed(#condition, __FILE__, __LINE__))
