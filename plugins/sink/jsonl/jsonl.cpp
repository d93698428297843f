// sink/jsonl: one JSON object a line, each appended by one write(2). A line is therefore whole or, after a
// crash or a full disk, torn at its end; what follows a torn line starts on a fresh one, so that only the
// torn line is lost.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tenon/plugin.h"
#include "tenon/sink.h"
#include "tenon_sdk/plugin.hpp"

struct tenon_sink_state {
  explicit tenon_sink_state(const std::string& file);
  ~tenon_sink_state();
  tenon_sink_state(const tenon_sink_state&) = delete;
  tenon_sink_state& operator=(const tenon_sink_state&) = delete;
  void append(const std::string& line);

  std::string path;
  int fd;
  bool torn;  // what is in the file does not end with a newline
};

namespace {

using tenon::sdk::Failure;
using tenon::sdk::guard;
using Line = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& path, const char* what, int number) {
  throw Failure(TENON_E_IO, "'" + path + "' " + what + ": " + std::generic_category().message(number),
                "errno", number);
}

bool ends_inside_a_line(const std::string& path, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode) || status.st_size == 0) return false;
  char last = 0;
  if (::pread(fd, &last, 1, status.st_size - 1) != 1) fail(path, "cannot be read", errno);
  return last != '\n';
}

// JSON has no NaN and no infinity: the library writes null.
Line to_line(const tenon_record& record) {
  Line line = {{"event", record.event}, {"step", record.step}, {"attempt", record.attempt}};
  const auto add = [&line](const char* name, const auto& value) {
    if (line.contains(name))
      throw Failure(TENON_E_ARGUMENT, std::string("'") + name + "' stands twice in one record");
    line[name] = value;
  };
  for (uint32_t i = 0; i < record.num_metrics; ++i) {
    const auto metric = tenon::sdk::read(record.metrics[i], TENON_END(tenon_metric, value));
    add(metric.name, metric.value);
  }
  for (uint32_t i = 0; i < record.num_texts; ++i) {
    const auto text = tenon::sdk::read(record.texts[i], TENON_END(tenon_text, text));
    add(text.name, text.text);
  }
  return line;
}

tenon_code open_state(const tenon_sink_config* given, tenon_sink_state** out, tenon_error* error) {
  return guard(error, [&] {
    const auto config = tenon::sdk::read(given, TENON_END(tenon_sink_config, recipe));
    const std::string file = tenon::sdk::Options(config).string("file");
    if (file.empty()) throw Failure(TENON_E_ARGUMENT, "file is empty: give the file a name");
    *out = new tenon_sink_state((std::filesystem::path(config.directory) / file).string());
  });
}

void close_state(tenon_sink_state* state) { delete state; }

tenon_code write_record(tenon_sink_state* state, const tenon_record* record, tenon_error* error) {
  return guard(error, [&] {
    const auto whole = tenon::sdk::read(record, TENON_END(tenon_record, reserved));
    state->append(to_line(whole).dump(-1, ' ', false, Line::error_handler_t::replace) + "\n");
  });
}

constexpr tenon_option_decl kFile =
    tenon::sdk::string_option("file", "where to append; relative to the run's folder", "metrics.jsonl");
constexpr const tenon_option_decl* kOptions[] = {&kFile};

constexpr tenon_sink kTable = {sizeof(tenon_sink), 0, open_state, close_state, write_record};

}  // namespace

tenon_sink_state::tenon_sink_state(const std::string& file)
    : path(file), fd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd < 0) fail(path, "cannot be opened for appending", errno);
  try {
    torn = ends_inside_a_line(path, fd);
  } catch (...) {
    ::close(fd);
    throw;
  }
}

tenon_sink_state::~tenon_sink_state() { ::close(fd); }

void tenon_sink_state::append(const std::string& line) {
  const std::string bytes = torn ? "\n" + line : line;
  ssize_t written = -1;
  do {
    written = ::write(fd, bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) fail(path, "cannot be written", errno);
  if (static_cast<size_t>(written) == bytes.size()) {
    torn = false;
    return;
  }
  if (written > 0) torn = bytes[static_cast<size_t>(written) - 1] != '\n';
  throw Failure(TENON_E_IO, "'" + path + "' took " + std::to_string(written) + " of " +
                                std::to_string(bytes.size()) + " bytes: is the disk full?");
}

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_SINK, kTable>(
    "sink/jsonl", "0.1.0", "Appends metrics and events to a file, one JSON object a line", kOptions);
