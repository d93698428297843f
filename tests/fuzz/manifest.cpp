// Manifests of checkpoints and reports of shards. A manifest without a digest gets the right one, so that
// what is behind the digest is reached.
#include "run/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz.h"
#include "run/checkpoint/shard_file.h"

namespace tenon::fuzz {
namespace {

std::string with_digest(std::string_view input) {
  const auto document = parse_json(std::string(input), "");
  if (!document.ok() || !document->is_object() || document->contains("self_sha256"))
    return std::string(input);
  Json out = *document;
  const auto digest = checkpoint::sha256(canonical(out));
  if (!digest.ok()) broken("no SHA-256");
  out["self_sha256"] = *digest;
  return canonical(out) + "\n";
}

// The shards of a manifest that can be read may still have no room for its parts.
std::vector<Error> check_manifest(const checkpoint::Manifest& manifest, const std::string& text) {
  const auto again = checkpoint::manifest_text(manifest);
  if (!again.ok() || *again != text) broken("a manifest that is read is not written again");
  const auto layouts = checkpoint::lay_out(manifest, "manifest.json");
  if (!layouts.ok()) return {layouts.error()};
  for (const checkpoint::ShardLayout& layout : *layouts) {
    if (!checkpoint::check_header(layout, layout.header, "shard").ok()) broken("a header is not its own");
  }
  return {};
}

std::vector<Error> feed_manifest(std::string_view input) {
  const std::string text = with_digest(input);
  const auto manifest = checkpoint::parse_manifest(text, "manifest.json");
  std::vector<Error> out = manifest.ok() ? check_manifest(*manifest, text) : std::vector{manifest.error()};
  const auto report = checkpoint::parse_report(std::string(input));
  if (!report.ok())
    out.push_back(report.error());
  else if (checkpoint::report_text(*report) != canonical(Json::parse(input)))
    broken("a report that is read is not written again");
  return out;
}

}  // namespace

const Target& manifest() {
  static const Target target{"manifest",
                             Form::json,
                             feed_manifest,
                             {"C003", "C008", "C009", "C013"},
                             {"manifest.cpp", "manifest_check.cpp", "shard_file.cpp"},
                             {{"C004", "of shard files: see the target shard_header"},
                              {"C007", "of names to save; read, they are C003"}}};
  return target;
}

}  // namespace tenon::fuzz
