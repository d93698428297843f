#include "cli/bench_rank.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/files.h"

namespace tenon::cli {
namespace {

std::string request_file(const Job& job) { return job.directory + "/bench.json"; }
std::string report_file(const Job& job) { return job.directory + "/report.json"; }

Result<Json> read_json(const std::string& path) {
  std::ifstream in(path);
  return parse_json({std::istreambuf_iterator<char>(in), {}}, path);
}

}  // namespace

Status ask_ranks(const Job& job, const std::string& part, const bench::Settings& settings) {
  const Json request{{"part", part},
                     {"rounds", settings.rounds},
                     {"sizes", settings.sizes},
                     {"collectives", settings.collectives}};
  return write_file(request_file(job), request.dump());
}

Status bench_rank(PluginRegistry& registry, const Job& job, const SessionOptions& session) {
  TENON_TRY(const Json request, read_json(request_file(job)));
  const bench::Settings settings{session.threads, request.at("rounds"), request.at("sizes"),
                                 request.at("collectives")};
  TENON_TRY(PluginSet plugins, plugins_of(registry, job));  // this rank's own, which step changes
  TENON_TRY(const Json report, request.at("part") == "comm"
                                   ? bench::measure_comm(plugins, session.id, *session.rendezvous, settings)
                                   : bench::measure_step(job.recipe, plugins, session, settings));
  return session.id.rank == 0 ? write_file(report_file(job), report.dump()) : Status();
}

Result<Json> report_of_ranks(const Job& job) { return read_json(report_file(job)); }

}  // namespace tenon::cli
