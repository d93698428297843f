#include "source.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tenon::lua {
namespace {

constexpr std::array<std::string_view, 22> kKeywords{
    "and", "break", "do",  "else", "elseif", "end",    "false",  "for",  "function", "goto",  "if",
    "in",  "local", "nil", "not",  "or",     "repeat", "return", "then", "true",     "until", "while"};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Walks over the text; every step keeps `at` inside it.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next token, or false at the end.
  bool next(Token& out) {
    skip_blank();
    if (at_ >= text_.size()) return false;
    out = Token{TokenKind::symbol, at_, at_, line_};
    const char c = peek();
    if (is_word(c) && !is_digit(c)) {
      word(out);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      out.kind = TokenKind::number;
      number();
    } else if (c == '"' || c == '\'') {
      out.kind = TokenKind::string;
      quoted(c);
    } else if (c == '[' && long_level() >= 0) {
      out.kind = TokenKind::string;
      long_bracket(long_level());
    } else {
      symbol();
    }
    out.end = at_;
    return true;
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void step(size_t n = 1) {
    for (; n > 0 && at_ < text_.size(); --n) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
  }
  void word(Token& out) {
    while (is_word(peek())) step();
    const std::string_view word = text_.substr(out.begin, at_ - out.begin);
    const bool reserved = std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end();
    out.kind = reserved ? TokenKind::keyword : TokenKind::name;
  }
  void number() {
    const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    for (char c = peek(); is_word(c) || c == '.'; c = peek()) {
      const bool exponent = hex ? (c == 'p' || c == 'P') : (c == 'e' || c == 'E');
      step();
      if (exponent && (peek() == '+' || peek() == '-')) step();
    }
  }
  void quoted(char quote) {
    step();
    while (at_ < text_.size() && peek() != quote) step(peek() == '\\' ? 2 : 1);
    step();
  }
  // Of `[`, `=` * level, `[` at this point; -1 if there is none.
  int long_level() const {
    size_t n = 1;
    while (peek(n) == '=') ++n;
    return peek() == '[' && peek(n) == '[' ? static_cast<int>(n) - 1 : -1;
  }
  void long_bracket(int level) {
    const std::string close = "]" + std::string(static_cast<size_t>(level), '=') + "]";
    const size_t found = text_.find(close, at_);
    step(found == std::string_view::npos ? text_.size() - at_ : found + close.size() - at_);
  }
  void skip_blank() {
    while (at_ < text_.size()) {
      if (is_space(peek())) {
        step();
      } else if (peek() == '-' && peek(1) == '-') {
        step(2);
        if (const int level = long_level(); level >= 0)
          long_bracket(level);
        else
          while (at_ < text_.size() && peek() != '\n') step();
      } else {
        return;
      }
    }
  }
  void symbol() {
    static constexpr std::array<std::string_view, 12> kLong{
        "...", "..", "==", "~=", "<=", ">=", "//", "::", "<<", ">>", "", ""};
    for (const std::string_view symbol : kLong) {
      if (!symbol.empty() && text_.substr(at_, symbol.size()) == symbol) return step(symbol.size());
    }
    step();
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

// The contents of a quoted key without escapes; a key with escapes keeps its raw text.
std::string key_text(std::string_view token) {
  if (token.size() >= 2 && (token.front() == '"' || token.front() == '\'')) {
    return std::string(token.substr(1, token.size() - 2));
  }
  return std::string(token);
}

}  // namespace

Source::Source(std::string text) : text_(std::move(text)) {
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  tokenize();
  find_constructors();
  find_returns();
}

void Source::tokenize() {
  Lexer lexer(text_);
  Token token{};
  while (lexer.next(token)) tokens_.push_back(token);
}

std::string_view Source::text_of(size_t token) const {
  if (token >= tokens_.size()) return {};
  return std::string_view(text_).substr(tokens_[token].begin, tokens_[token].end - tokens_[token].begin);
}

bool Source::is(size_t token, std::string_view text) const {
  return token < tokens_.size() && tokens_[token].kind != TokenKind::string && text_of(token) == text;
}

Position Source::position_of(size_t token) const {
  if (token >= tokens_.size()) return {};
  const size_t begin = line_starts_[static_cast<size_t>(tokens_[token].line) - 1];
  int column = 1;
  for (size_t i = begin; i < tokens_[token].begin; ++i) {
    if ((static_cast<unsigned char>(text_[i]) & 0xC0) != 0x80) ++column;  // not a continuation byte
  }
  return {tokens_[token].line, column};
}

std::string Source::line(int number) const {
  if (number < 1 || static_cast<size_t>(number) > line_starts_.size()) return "";
  const size_t begin = line_starts_[static_cast<size_t>(number) - 1];
  size_t end = text_.find('\n', begin);
  if (end == std::string::npos) end = text_.size();
  if (end > begin && text_[end - 1] == '\r') --end;
  return text_.substr(begin, end - begin);
}

// Walks back over `a.b.c` or `a:b` to its first name. `last` is the last token of the chain.
size_t Source::chain_start(size_t last) const {
  size_t start = last;
  while (start >= 2 && (is(start - 1, ".") || is(start - 1, ":")) &&
         tokens_[start - 2].kind == TokenKind::name) {
    start -= 2;
  }
  return start;
}

Constructor Source::constructor_at(size_t token) const {
  Constructor made;
  made.open = made.close = made.start = token;
  if (token == 0) return made;
  const TokenKind before = tokens_[token - 1].kind;
  const bool closing = is(token - 1, ")") || is(token - 1, "]") || is(token - 1, "}");
  made.bare_argument = before == TokenKind::name || before == TokenKind::string || closing;
  if (before == TokenKind::name) made.start = chain_start(token - 1);
  if (token > 1 && is(token - 1, "(") && tokens_[token - 2].kind == TokenKind::name) {
    made.start = chain_start(token - 2);
  }
  return made;
}

// A field of `owner` begins at the token.
void Source::note_field(Constructor& owner, size_t token) const {
  if (tokens_[token].kind == TokenKind::name && is(token + 1, "=")) {
    owner.keys.emplace(text_of(token), token);
  } else if (is(token, "[") && is(token + 2, "]") && is(token + 3, "=") &&
             tokens_[token + 1].kind == TokenKind::string) {
    owner.keys.emplace(key_text(text_of(token + 1)), token + 1);
  } else if (!is(token, "[")) {
    owner.items.push_back(token);
  }
}

// +1 where something opens that a later token closes, -1 where it is closed.
int Source::nesting(size_t token) const {
  for (const char* open : {"{", "(", "[", "function", "do", "if", "repeat"}) {
    if (is(token, open)) return 1;
  }
  for (const char* close : {"}", ")", "]", "end", "until"}) {
    if (is(token, close)) return -1;
  }
  return 0;
}

void Source::find_constructors() {
  std::vector<long> open;  // what is not yet closed: a constructor's number, -1 for anything else
  bool at_field = false;   // a field of the innermost constructor begins here
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool inside = !open.empty() && open.back() >= 0;
    if (at_field && inside && !is(i, "}")) note_field(constructors_[static_cast<size_t>(open.back())], i);
    at_field = is(i, "{") || (inside && (is(i, ",") || is(i, ";")));
    const int change = nesting(i);
    if (is(i, "{")) {
      open.push_back(static_cast<long>(constructors_.size()));
      constructors_.push_back(constructor_at(i));
    } else if (change > 0) {
      open.push_back(-1);
    } else if (change < 0 && !open.empty()) {
      if (inside && is(i, "}")) constructors_[static_cast<size_t>(open.back())].close = i;
      open.pop_back();
    }
  }
}

// A return is the last statement of its block: what it returns ends before the block does.
void Source::find_returns() {
  struct Open {
    size_t first;  // token behind `return`
    int depth;
  };
  std::vector<Open> open;
  int depth = 0;
  const auto ends_block = [this](size_t i) {
    return i >= tokens_.size() || is(i, "end") || is(i, "else") || is(i, "elseif") || is(i, "until") ||
           is(i, ";");
  };
  for (size_t i = 0; i <= tokens_.size(); ++i) {
    if (!open.empty() && open.back().depth == depth && ends_block(i)) {
      if (i > open.back().first) returns_.emplace_back(open.back().first, i - 1);
      open.pop_back();
    }
    if (i == tokens_.size()) break;
    depth += nesting(i);
    if (is(i, "return")) open.push_back({i + 1, depth});
  }
}

std::string Source::instrumented(bool tables, size_t first_id) const {
  // Insertions by byte. At one byte, what closes comes before what opens; an inner part closes first and
  // opens last, which the order of filling below gives.
  std::map<size_t, std::string> opening, closing;
  for (const auto& [first, last] : returns_) {
    opening[tokens_[first].begin] += "__tenon_values(";
    closing[tokens_[last].end] = ")";
  }
  for (size_t i = 0; tables && i < constructors_.size(); ++i) {
    const Constructor& c = constructors_[i];
    if (c.close == c.open) continue;
    std::string& before = opening[tokens_[c.open].begin];
    before.append(c.bare_argument ? "(" : "").append("__tenon_table(");
    before.append(std::to_string(first_id + i)).append(",");
    closing[tokens_[c.close].end].insert(0, c.bare_argument ? "))" : ")");
  }
  std::string out = "local __tenon_table, __tenon_values = ...; ";
  size_t at = 0;
  while (!opening.empty() || !closing.empty()) {
    const size_t o = opening.empty() ? text_.size() + 1 : opening.begin()->first;
    const size_t c = closing.empty() ? text_.size() + 1 : closing.begin()->first;
    const size_t next = std::min(o, c);
    out.append(text_, at, next - at);
    at = next;
    auto& list = c <= o ? closing : opening;
    out += list.begin()->second;
    list.erase(list.begin());
  }
  return out.append(text_, at);
}

bool Source::is_key(size_t token) const {
  return is(token + 1, "=") && token > 0 && (is(token - 1, "{") || is(token - 1, ",") || is(token - 1, ";"));
}

Position Source::find_variable(std::string_view name, int line) const {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].line != line || tokens_[i].kind != TokenKind::name || text_of(i) != name) continue;
    const bool field = i > 0 && (is(i - 1, ".") || is(i - 1, ":"));
    if (!field && !is_key(i)) return position_of(i);
  }
  return find_text("", line);
}

Position Source::find_last_return() const {
  for (size_t i = tokens_.size(); i-- > 0;) {
    if (is(i, "return")) return position_of(i);
  }
  return tokens_.empty() ? Position{1, 1} : position_of(tokens_.size() - 1);
}

Position Source::find_text(std::string_view text, int line) const {
  Position first{line, 1};
  bool seen = false;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].line != line) continue;
    if (!seen) first = position_of(i);
    seen = true;
    if (!text.empty() && text_of(i) == text) return position_of(i);
  }
  return first;
}

Position Source::find_call(std::string_view function, int line) const {
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    if (tokens_[i].line != line || tokens_[i].kind != TokenKind::name || text_of(i) != function) continue;
    const bool called = is(i + 1, "(") || is(i + 1, "{") || tokens_[i + 1].kind == TokenKind::string;
    if (called && !is(i == 0 ? i : i - 1, "function")) return position_of(chain_start(i));
  }
  return find_text("", line);
}

std::vector<std::string> Source::local_names() const {
  std::vector<std::string> out;
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    if (!is(i, "local")) continue;
    for (size_t k = i + (is(i + 1, "function") ? 2 : 1); k < tokens_.size(); k += 2) {
      if (tokens_[k].kind != TokenKind::name) break;
      out.emplace_back(text_of(k));
      if (!is(k + 1, ",")) break;
    }
  }
  for (const Constructor& c : constructors_) {
    if (!c.bare_argument || !is(c.open - 1, "params") || c.start < 3 || !is(c.start - 1, "=")) continue;
    for (const auto& [key, token] : c.keys) out.push_back(std::string(text_of(c.start - 2)) + "." + key);
  }
  return out;
}

}  // namespace tenon::lua
