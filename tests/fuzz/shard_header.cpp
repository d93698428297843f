// The header of a shard file, a safetensors header, beside the one that the manifest asks for.
#include "fuzz.h"
#include "run/checkpoint/shard_file.h"

namespace tenon::fuzz {
namespace {

struct Expected {
  std::map<std::string, checkpoint::Tensor> tensors;
  checkpoint::ShardLayout layout;

  Expected() {
    for (const auto& [name, shape] :
         {std::pair<const char*, checkpoint::Shape>{"bias", {}}, {"weight", {2, 3}}}) {
      checkpoint::Tensor& tensor = tensors[name];
      tensor.dtype = TENON_F32;
      tensor.shape = shape;
      checkpoint::Part part;
      part.box = checkpoint::whole_box(shape);
      part.offset = shape.empty() ? 0 : 4;
      part.chunks = {0};
      tensor.parts.push_back(part);
    }
    layout = checkpoint::lay_out(checkpoint::SaveId{"run", 3}, tensors, 0, "manifest.json").value();
  }
};

// An input is a whole header; or starts with '{' and is the JSON in a header of the right length.
std::string header_of(std::string_view input, const std::string& expected) {
  if (!input.starts_with('{')) return std::string(input.substr(0, expected.size()));
  std::string out = expected.substr(0, 8) + std::string(input);
  out.resize(expected.size(), ' ');
  return out;
}

std::vector<Error> feed_header(std::string_view input) {
  static const Expected expected;
  const std::string header = header_of(input, expected.layout.header);
  const Status status = checkpoint::check_header(expected.layout, header, "shard-00000.safetensors");
  if (status.ok() != (header == expected.layout.header))
    broken("a header that is not the manifest's is accepted");
  return status.ok() ? std::vector<Error>{} : std::vector<Error>{status.error()};
}

}  // namespace

const Target& shard_header() {
  static const Target target{"shard_header",     Form::json,
                             feed_header,        {"C004"},
                             {"shard_file.cpp"}, {{"C003", "of manifests: see the target manifest"}}};
  return target;
}

}  // namespace tenon::fuzz
