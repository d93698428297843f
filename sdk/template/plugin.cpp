// sink/template: writes one line of text per record. A plugin to copy: it has all that a plugin needs,
// and works. Another kind differs in the interface's header and table alone.
#include "tenon_sdk/plugin.hpp"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "tenon/sink.h"

// What open() makes and close() ends. One object per use: keep nothing in globals.
struct tenon_sink_state {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file;
};

namespace {

using tenon::sdk::Failure;
using tenon::sdk::guard;
using tenon::sdk::read;

// Declared once: the host checks them, fills defaults, and makes messages and reference pages from them.
constexpr tenon_option_decl kFile =
    tenon::sdk::string_option("file", "name of the file in the run's folder", "records.txt");
constexpr const tenon_option_decl* kOptions[] = {&kFile};

// The slots. guard() turns exceptions into errors: none may cross the border. read() takes what a host of any
// later version passes, as this plugin knows it; its second argument is the end of what the plugin needs.
tenon_code open_sink(const tenon_sink_config* given, tenon_sink_state** out, tenon_error* error) {
  return guard(error, [&] {
    const auto config = read(given, TENON_END(tenon_sink_config, recipe));
    const std::string path = std::string(config.directory) + "/" + tenon::sdk::Options(config).string("file");
    std::FILE* const file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) throw Failure(TENON_E_IO, "cannot open " + path, "errno", errno);
    *out = new tenon_sink_state{{file, std::fclose}};
  });
}

void close_sink(tenon_sink_state* state) { delete state; }

tenon_code write_record(tenon_sink_state* state, const tenon_record* given, tenon_error* error) {
  return guard(error, [&] {
    const auto record = read(given, TENON_END(tenon_record, reserved));
    std::FILE* const file = state->file.get();
    std::fprintf(file, "%s %lld", record.event, static_cast<long long>(record.step));
    for (uint32_t i = 0; i < record.num_metrics; ++i) {
      std::fprintf(file, " %s=%.9g", record.metrics[i]->name, record.metrics[i]->value);
    }
    for (uint32_t i = 0; i < record.num_texts; ++i) {
      std::fprintf(file, " %s=%s", record.texts[i]->name, record.texts[i]->text);
    }
    std::fputc('\n', file);
    if (std::fflush(file) != 0) throw Failure(TENON_E_IO, "cannot write the record", "errno", errno);
  });
}

constexpr tenon_sink kTable = {sizeof(tenon_sink), 0, open_sink, close_sink, write_record};

}  // namespace

// The one symbol that is exported. The id is also the file's name: libtenon-sink-template.so. Who logs, or
// needs the host's services, adds functions to the template's arguments that keep its table and drop it; they
// must be fast and harmless: no files, threads, devices or network.
extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_SINK, kTable>(
    "sink/template", "0.1.0", "One line of text per record", kOptions);
