// tenon-recipe <front end .so> <library folder> <recipe> [key=value ...]
// Evaluates one recipe in a process of its own, within limits of processor time and memory, and writes the
// front end's document (tenon/frontend.h) to standard output, and nothing else: in front of it a newline for
// the loading of the front end's file and for each function of it that was entered (init, get_interface,
// evaluate), which JSON does not mind and which tells where the process died.
// Exit: 0 a document was written (also one that says what is wrong with the recipe), 2 usage, 3 the front end
// cannot be loaded, 4 the front end failed.
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tenon/frontend.h"
#include "tenon/plugin.h"

namespace {

constexpr rlim_t kProcessorSeconds = 2;
constexpr rlim_t kAddressSpace = rlim_t{512} << 20;
constexpr unsigned kWallSeconds = 60;  // should the parent not be there to end us

bool limit(int resource, rlim_t soft, rlim_t hard) {
  const struct rlimit value { soft, hard };
  return setrlimit(static_cast<__rlimit_resource_t>(resource), &value) == 0;
}

bool set_limits() {
  alarm(kWallSeconds);
  bool done = limit(RLIMIT_CORE, 0, 0);
  done = limit(RLIMIT_CPU, kProcessorSeconds, kProcessorSeconds + 1) && done;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
  done = limit(RLIMIT_AS, kAddressSpace, kAddressSpace) && done;
#endif
  return done;
}

// The document's way out: the first standard output, while printing by anyone else goes to standard error.
class Output {
 public:
  Output() : file_(dup(STDOUT_FILENO)) { dup2(STDERR_FILENO, STDOUT_FILENO); }
  ~Output() { close(file_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  static void emit(void* self, const char* json, uint64_t size) {
    auto& output = *static_cast<Output*>(self);
    ++output.documents_;
    if (json != nullptr) output.write_all(json, size);
  }
  int documents() const { return documents_; }
  // The front end's next function is entered.
  void mark() { write_all("\n", 1); }

 private:
  void write_all(const char* data, uint64_t size) {
    while (size > 0) {
      const ssize_t n = write(file_, data, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return;
      data += n;
      size -= static_cast<uint64_t>(n);
    }
  }
  int file_;
  int documents_ = 0;
};

// What a front end has of a host: a log, which goes to standard error.
const void* no_table(const tenon_host*, const char*) { return nullptr; }
int32_t log_enabled(const tenon_host*, uint32_t level) { return level <= TENON_LOG_WARN ? 1 : 0; }
void log_line(const tenon_host* host, uint32_t level, const char*, uint32_t, const char* message) {
  if (log_enabled(host, level) != 0 && message != nullptr) std::fprintf(stderr, "%s\n", message);
}
constexpr tenon_host kHost{sizeof(tenon_host), TENON_ABI_MINOR, nullptr, no_table, log_enabled, log_line};

const tenon_plugin* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return nullptr;
  }
  const auto* plugin = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  if (plugin == nullptr || !TENON_FN(plugin, tenon_plugin, init) || !TENON_FN(plugin, tenon_plugin, deinit) ||
      !TENON_FN(plugin, tenon_plugin, get_interface)) {
    std::fprintf(stderr, "%s: not a plugin of this Tenon\n", path);
    return nullptr;
  }
  if (plugin->abi_major != TENON_ABI_MAJOR || plugin->abi_minor_required > TENON_ABI_MINOR ||
      plugin->abi_minor_required > plugin->abi_minor_built ||
      plugin->abi_minor_built < TENON_ABI_OLDEST_MINOR) {
    std::fprintf(stderr, "%s: built with ABI %u.%u, needs %u.%u, this is %u.%u\n", path, plugin->abi_major,
                 plugin->abi_minor_built, plugin->abi_major, plugin->abi_minor_required, TENON_ABI_MAJOR,
                 TENON_ABI_MINOR);
    return nullptr;
  }
  return plugin;
}

// Says what went wrong in `slot`, if anything did.
bool succeeded(const char* slot, tenon_code code, const tenon_error& error) {
  if (code == TENON_OK) return true;
  if (code > TENON_OK) {
    std::fprintf(stderr, "%s answered %d, which is no code of this call\n", slot, code);
  } else {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(strnlen(error.message, sizeof error.message)),
                 error.message);
  }
  return false;
}

// The exit code.
int evaluate(const tenon_plugin& plugin, const tenon_frontend_config& config, Output& output) {
  output.mark();
  const auto* frontend = static_cast<const tenon_frontend*>(plugin.get_interface(TENON_FRONTEND));
  if (frontend == nullptr || !TENON_FN(frontend, tenon_frontend, evaluate)) {
    std::fprintf(stderr, "has no front end (%s)\n", TENON_FRONTEND);
    return 3;
  }
  tenon_error error{};
  error.struct_size = sizeof error;
  output.mark();
  if (!succeeded("evaluate", frontend->evaluate(&config, Output::emit, &output, &error), error)) return 4;
  if (output.documents() == 1) return 0;
  std::fprintf(stderr, "emitted %d documents, and not one\n", output.documents());
  return 4;
}

// Splits key=value in place, so that the strings of main() hold both parts.
bool split(char* argument, tenon_override& out) {
  char* equals = std::strchr(argument, '=');
  if (equals == nullptr || equals == argument) {
    std::fprintf(stderr, "'%s' is not key=value\n", argument);
    return false;
  }
  *equals = '\0';
  out = {argument, equals + 1};
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: tenon-recipe <front end .so> <library folder> <recipe> [key=value ...]\n");
    return 2;
  }
  if (!set_limits()) {
    std::fprintf(stderr, "cannot limit this process\n");
    return 4;
  }
  std::vector<tenon_override> overrides(static_cast<size_t>(argc - 4));
  for (int i = 4; i < argc; ++i) {
    if (!split(argv[i], overrides[static_cast<size_t>(i - 4)])) return 2;
  }
  Output output;
  output.mark();
  const tenon_plugin* plugin = load(argv[1]);
  if (plugin == nullptr) return 3;
  tenon_error error{};
  error.struct_size = sizeof error;
  output.mark();
  if (!succeeded("init", plugin->init(&kHost, &error), error)) return 4;
  const tenon_frontend_config config{
      sizeof config, static_cast<uint32_t>(overrides.size()), &kHost, argv[3], argv[2], overrides.data()};
  const int code = evaluate(*plugin, config, output);
  plugin->deinit();
  std::fflush(nullptr);
  _exit(code);  // nothing of what was loaded is run any more
}
