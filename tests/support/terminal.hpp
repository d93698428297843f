// A terminal as a test sees it: what a program under a pseudo-terminal wrote, in rows.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tenon::test {

// The part of a terminal that decides about rows: carriage return, line feed, backspace, erasing a line, and
// going on in the next row where a row is full. Every character is one column wide.
class Screen {
 public:
  enum class Wrap {
    late,  // with the first character that has no room, as xterm
    early  // as soon as the last column is written
  };
  Screen(size_t columns, Wrap wrap) : columns_(columns), wrap_(wrap), rows_(1) {}

  void write(const std::string& bytes);
  // Rows that are too long lose their ends, as xterm's do.
  void resize(size_t columns);

  struct Row {
    std::string text;
    bool goes_on = false;  // in the next row, for want of room
  };
  // From the first one, none is ever scrolled away.
  const std::vector<Row>& rows() const { return rows_; }
  // Escape sequences so far.
  int escapes() const { return escapes_; }

 private:
  void put(char c);
  void next_row();
  void escape(char last);

  size_t columns_;
  Wrap wrap_;
  std::vector<Row> rows_;
  size_t column_ = 0;  // of the cursor, which is in the last row
  int escapes_ = 0;
  std::string sequence_;  // an escape sequence that has not ended
};

// A program whose input, output and errors are a terminal of its own, of a kind that TERM names.
class Terminal {
 public:
  Terminal(std::vector<std::string> argv, const std::string& folder, size_t columns, Screen::Wrap wrap,
           const char* kind = "xterm");
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  // Reads until a row begins with `text`. False: the program ended or the deadline passed before.
  bool wait_for(const std::string& text, double seconds);
  // The window's new size, while the program stands still.
  void resize(size_t columns);
  // A key; '\3' is Ctrl-C.
  void type(char key);
  // Reads to the end. The exit code; -1: ended by a signal, or killed at the deadline.
  int finish(double seconds);

  const Screen& screen() const { return screen_; }

 private:
  // What is there within so many milliseconds. False: the program closed its terminal.
  bool read_some(int milliseconds);

  Screen screen_;
  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace tenon::test
