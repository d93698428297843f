// The text of one Lua file with its tokens: says where a key of a table constructor stands, which Lua itself
// does not keep (its line information ends at calls). A lexer, not a parser: it relies on Lua having accepted
// the text, and stays inside its bounds for any other text.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::lua {

struct Position {
  int line = 0;    // from 1; 0: unknown
  int column = 0;  // from 1, in code points; 0: unknown
};

enum class TokenKind { name, keyword, string, number, symbol };

struct Token {
  TokenKind kind;
  size_t begin, end;  // bytes of the text
  int line;           // where it begins
};

// One `{ ... }` as written.
struct Constructor {
  size_t open = 0, close = 0;                       // tokens of the braces
  size_t start = 0;                                 // first token of the call `a.b.c { ... }`, or `open`
  bool bare_argument = false;                       // `f {`: a call without parentheses
  std::map<std::string, size_t, std::less<>> keys;  // `key =` and `["key"] =`: their tokens
  std::vector<size_t> items;                        // first tokens of the positional values
};

class Source {
 public:
  explicit Source(std::string text);

  const std::string& text() const { return text_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  const std::vector<Constructor>& constructors() const { return constructors_; }
  std::string_view text_of(size_t token) const;
  Position position_of(size_t token) const;
  // The line without its end, or "" when there is none.
  std::string line(int number) const;

  // The same program, on the same lines. What is returned is wrapped as `__tenon_values(...)`, so that no
  // call is a tail call, which would forget where it was made; and with `tables`, constructor number i as
  // `__tenon_table(first_id + i, { ... })`. Both functions are the arguments of the chunk.
  std::string instrumented(bool tables, size_t first_id) const;

  // Where `name` is read on that line as a variable (not a field or a key); else the line's first token.
  Position find_variable(std::string_view name, int line) const;
  // Where the last `return` stands; the last token if there is none.
  Position find_last_return() const;
  // The first token with that text on the line, else the line's first token, else column 1.
  Position find_text(std::string_view text, int line) const;
  // The token after which `function` is called on that line: its chain `a.b.c`.
  Position find_call(std::string_view function, int line) const;
  // Names after `local` and of parameters, plus `p.key` for every key of `local p = ....params { ... }`.
  std::vector<std::string> local_names() const;

 private:
  void tokenize();
  void find_constructors();
  Constructor constructor_at(size_t token) const;
  void note_field(Constructor& owner, size_t token) const;
  void find_returns();
  int nesting(size_t token) const;
  size_t chain_start(size_t last) const;
  bool is(size_t token, std::string_view text) const;
  bool is_key(size_t token) const;

  std::string text_;
  std::vector<size_t> line_starts_;
  std::vector<Token> tokens_;
  std::vector<Constructor> constructors_;
  std::vector<std::pair<size_t, size_t>> returns_;  // first and last token of what is returned
};

}  // namespace tenon::lua
