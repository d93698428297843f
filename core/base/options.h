// Options of a plugin: JSON checked against the plugin's own declarations (tenon_option_decl).
// An option is declared once; checks, defaults, messages and reference pages come from that.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tenon {

using OptionDecls = std::span<const tenon_option_decl* const>;

// Declarations of any minor's size as this one knows them: what a smaller one does not say is NULL, or no
// limit. They must have passed check_declarations(). Owns the structs, not the texts that they lead to.
class Declarations {
 public:
  Declarations() = default;
  explicit Declarations(OptionDecls given);
  OptionDecls all() const { return pointers_; }

 private:
  // Shared, so that a copy leads to the same structs.
  std::shared_ptr<const std::vector<tenon_option_decl>> decls_;
  std::vector<const tenon_option_decl*> pointers_;
};

// The options of one plugin, all of them, in the order of declaration. Owns every string and list;
// the pointers that data() leads to stay valid, and stay where they are, while the object (or what it
// was moved into) lives. Reading is thread-safe.
class OptionValues {
 public:
  OptionValues();
  OptionValues(OptionValues&&) noexcept;
  OptionValues& operator=(OptionValues&&) noexcept;
  ~OptionValues();

  const tenon_option* data() const;
  uint32_t size() const;
  // NULL when there is none of that name.
  const tenon_option* find(std::string_view key) const;

 private:
  friend class OptionReader;
  struct Storage;
  std::unique_ptr<Storage> storage_;
};

// Checks `given` (an object; null counts as empty) and fills defaults. `place` is the JSON pointer of
// `given` and `who` the plugin's id; both go into errors, all of kind TENON_E_RECIPE:
// R002 unknown key, R003 wrong type, R004 missing, R005 out of range or not among the choices.
Result<OptionValues> read_options(OptionDecls decls, const Json& given, const std::string& place,
                                  const std::string& who);

// Whether the declarations, of whatever size, are sound in themselves: at most 1000, names present and
// unique, known kinds, texts that end, defaults that read back and keep the plugin's own limits. The cause
// says which one is not. Code A005. A default of kind STRINGS is separated by commas; "" is the empty list.
Status check_declarations(OptionDecls decls, const std::string& who);

// "integer", "list of strings" ...; "" for an unknown kind.
std::string kind_name(uint32_t kind);
// Rows of a Markdown table: | name | type | default | allowed | what it does |, each ending in \n.
std::string options_markdown(OptionDecls decls);

// Appends one reference token to a JSON pointer, escaping '~' and '/'.
std::string json_pointer(const std::string& base, std::string_view token);

}  // namespace tenon
