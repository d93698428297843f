#include "cli/live_line.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <clocale>
#include <cwchar>

namespace tenon::cli {
namespace {

// The C library's tables of characters, whatever the user's locale is.
class Utf8 {
 public:
  Utf8() : utf8_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (utf8_ != nullptr) before_ = uselocale(utf8_);
  }
  ~Utf8() {
    if (utf8_ == nullptr) return;
    uselocale(before_);
    freelocale(utf8_);
  }
  Utf8(const Utf8&) = delete;
  Utf8& operator=(const Utf8&) = delete;

 private:
  locale_t utf8_;
  locale_t before_ = nullptr;
};

struct Character {
  size_t bytes = 1;
  size_t columns = 1;
};

Character first_of(std::string_view text) {
  wchar_t wide = 0;
  std::mbstate_t state{};
  const size_t bytes = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {};  // NUL, or no UTF-8
  return {bytes, static_cast<size_t>(std::max(0, wcwidth(wide)))};
}

}  // namespace

std::string cut_to(std::string_view text, size_t columns) {
  const Utf8 utf8;
  size_t end = 0, used = 0;
  while (end < text.size()) {
    const Character next = first_of(text.substr(end));
    if (used + next.columns > columns) break;
    used += next.columns;
    end += next.bytes;
  }
  return std::string(text.substr(0, end));
}

size_t columns_of(std::string_view text) {
  const Utf8 utf8;
  size_t used = 0;
  while (!text.empty()) {
    const Character next = first_of(text);
    used += next.columns;
    text.remove_prefix(next.bytes);
  }
  return used;
}

std::string joined(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    if (!field.text.empty()) out += (out.empty() ? "" : "  ") + field.text;
  }
  return out;
}

std::string fitted(std::vector<Field> fields, size_t columns) {
  std::string out = joined(fields);
  while (!fields.empty() && columns_of(out) > columns) {
    const auto last = std::ranges::max_element(fields, {}, &Field::rank);
    if (last->rank == 0) break;
    fields.erase(last);
    out = joined(fields);
  }
  return cut_to(out, columns);
}

size_t terminal_columns(int fd) {
  winsize size{};
  constexpr size_t kUsual = 80;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace tenon::cli
