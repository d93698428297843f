#include "terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace tenon::test {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point deadline_in(double seconds) {
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

winsize window(size_t columns) {
  winsize out{};
  out.ws_row = 24;
  out.ws_col = static_cast<unsigned short>(columns);
  return out;
}

}  // namespace

void Screen::next_row() {
  rows_.emplace_back();
  column_ = 0;
}

void Screen::put(char c) {
  if (column_ == columns_) {
    rows_.back().goes_on = true;
    next_row();
  }
  std::string& text = rows_.back().text;
  if (text.size() <= column_) text.resize(column_ + 1, ' ');
  text[column_++] = c;
  if (wrap_ == Wrap::early && column_ == columns_) {
    rows_.back().goes_on = true;
    next_row();
  }
}

void Screen::escape(char last) {
  ++escapes_;
  std::string& text = rows_.back().text;
  if (last == 'K' && sequence_ == "\033[2")
    text.clear();
  else if (last == 'K')
    text.resize(std::min(text.size(), column_));
  else
    throw std::runtime_error("an escape sequence that this terminal does not know: " + sequence_.substr(1) +
                             last);
}

void Screen::write(const std::string& bytes) {
  for (const char c : bytes) {
    if (!sequence_.empty()) {
      const bool more = c == '[' || (c >= '0' && c <= '9') || c == ';';
      if (!more) escape(c);
      sequence_ = more ? sequence_ + c : "";
    } else if (c == '\033') {
      sequence_ = c;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\b') {
      column_ -= column_ > 0 ? 1 : 0;
    } else if (c == '\n') {
      const size_t column = column_;
      next_row();
      column_ = column;
    } else {
      put(c);
    }
  }
}

void Screen::resize(size_t columns) {
  columns_ = columns;
  for (Row& row : rows_) row.text.resize(std::min(row.text.size(), columns));
  column_ = std::min(column_, columns);
}

Terminal::Terminal(std::vector<std::string> argv, const std::string& folder, size_t columns,
                   Screen::Wrap wrap, const char* kind)
    : screen_(columns, wrap) {
  std::vector<char*> pointers;
  for (std::string& text : argv) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const winsize size = window(columns);
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("forkpty");
  if (pid_ > 0) return;
  setenv("TERM", kind, 1);
  if (chdir(folder.c_str()) == 0) execv(pointers[0], pointers.data());
  _exit(127);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

bool Terminal::read_some(int milliseconds) {
  pollfd entry{fd_, POLLIN, 0};
  if (poll(&entry, 1, milliseconds) <= 0) return true;
  char buffer[65536];
  const ssize_t n = read(fd_, buffer, sizeof buffer);
  if (n <= 0) return false;  // EIO: nobody has the other end
  screen_.write({buffer, static_cast<size_t>(n)});
  return true;
}

bool Terminal::wait_for(const std::string& text, double seconds) {
  const auto deadline = deadline_in(seconds);
  const auto there = [&](const Screen::Row& row) { return row.text.starts_with(text); };
  while (!std::ranges::any_of(screen_.rows(), there)) {
    if (!read_some(20) || Clock::now() > deadline) return false;
  }
  return true;
}

void Terminal::resize(size_t columns) {
  kill(-pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
  for (pollfd entry{fd_, POLLIN, 0}; poll(&entry, 1, 50) > 0;) read_some(0);
  const winsize size = window(columns);
  if (ioctl(fd_, TIOCSWINSZ, &size) != 0) throw std::runtime_error("TIOCSWINSZ");
  screen_.resize(columns);
  kill(-pid_, SIGCONT);
}

void Terminal::type(char key) {
  if (::write(fd_, &key, 1) != 1) throw std::runtime_error("write");
}

int Terminal::finish(double seconds) {
  const auto deadline = deadline_in(seconds);
  while (read_some(20)) {
    if (Clock::now() > deadline) return -1;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace tenon::test
