// Values that many hold and nobody changes: a copy shares what it was copied from. Whoever wants another
// value assigns one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT: as good as a T

  const T& get() const {
    if (value_) return *value_;
    static const T nothing{};
    return nothing;
  }
  operator const T&() const { return get(); }  // NOLINT
  const T& operator*() const { return get(); }
  const T* operator->() const { return &get(); }

  // Lets `how` change a copy, which is this one's own from then on.
  template <class How>
  void change(How how) {
    T value = get();
    how(value);
    value_ = std::make_shared<const T>(std::move(value));
  }

  // As T has them.
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  auto size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  decltype(auto) operator[](size_t i) const { return get()[i]; }
  decltype(auto) back() const { return get().back(); }
  template <class Key>
  auto find(const Key& key) const {
    return get().find(key);
  }
  template <class Key>
  bool contains(const Key& key) const {
    return get().contains(key);
  }

  friend bool operator==(const Shared& a, const Shared& b) {
    return a.value_ == b.value_ || a.get() == b.get();
  }
  friend bool operator==(const Shared& a, const T& b) { return a.get() == b; }

 private:
  std::shared_ptr<const T> value_;
};

// Sizes, in elements.
class Extents : public Shared<std::vector<int64_t>> {
 public:
  using Shared::Shared;
  Extents(std::initializer_list<int64_t> sizes) : Shared(std::vector<int64_t>(sizes)) {}
};

// A text, for which literals do as well.
class SharedText : public Shared<std::string> {
 public:
  using Shared::Shared;
  SharedText(const char* text) : Shared(std::string(text)) {}  // NOLINT
  operator std::string_view() const { return get(); }          // NOLINT
  bool starts_with(std::string_view text) const { return get().starts_with(text); }
  bool ends_with(std::string_view text) const { return get().ends_with(text); }
  friend bool operator==(const SharedText& a, const SharedText& b) { return a.get() == b.get(); }
  friend bool operator==(const SharedText& a, std::string_view b) { return a.get() == b; }
  friend bool operator==(const SharedText& a, const std::string& b) { return a.get() == b; }
  friend bool operator==(const SharedText& a, const char* b) { return a.get() == b; }
  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) { return out << text.get(); }
  friend std::string operator+(const SharedText& a, std::string_view b) { return a.get() + std::string(b); }
};

}  // namespace tenon

template <>
struct fmt::formatter<tenon::SharedText> : fmt::formatter<std::string_view> {
  auto format(const tenon::SharedText& text, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(text.get(), context);
  }
};
