// Tensors whole, in host memory, whatever the mesh: which there are, and reading and writing them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "run/session.h"
#include "run/word_sum.h"

namespace tenon {

struct WholeTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
  bool is_state = false;  // of the optimizer

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements() * size_of(dtype)); }
};

// All tensors of a model, wherever its ranks hold them: parameters in the model's order, then the state of
// each. `layout`: what fixes which rank holds what.
std::vector<WholeTensor> whole_tensors(const Compiled& layout);

class WholeTensors {
 public:
  // The session is borrowed. Collective.
  static Result<std::unique_ptr<WholeTensors>> open(Session& session);

  // Fills `into`, which may be NULL, dense and row-major: every rank gives the parts that it speaks for, and
  // all of them are added up, a piece at a time. Collective.
  Status read(const WholeTensor& tensor, std::byte* into);
  // Fills all that this rank holds of it, copies included, from the whole tensor. Other ranks do the same.
  void write(const WholeTensor& tensor, const std::byte* from) const;
  // As WordSum::agree. Collective.
  Status agree(const std::string& what, const std::string& mine) { return words_->agree(what, mine); }

 private:
  WholeTensors(Session& session, std::unique_ptr<WordSum> piece, std::unique_ptr<WordSum> words)
      : session_(session), piece_(std::move(piece)), words_(std::move(words)) {}

  Session& session_;
  std::unique_ptr<WordSum> piece_, words_;
};

}  // namespace tenon
