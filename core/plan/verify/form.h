// How the bytes of a rank stand for a value: which part of it, and what is still to be done to it. A form is
// the same on all ranks of a class, whose coordinates say which part each one's is.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tenon {

// A dim of a value, of `size` in all: cut by the axes, major first; and of a rank's part only the `index`th
// of `of` equal parts.
struct DimForm {
  int64_t size = 1;
  std::vector<AxisId> axes;
  int64_t index = 0, of = 1;
  bool operator==(const DimForm&) const = default;
};

// Some of a group's addends, added up: those of members [lo, lo + n) of `axes`. n 0: not that.
struct Block {
  std::vector<AxisId> axes;
  int64_t lo = 0, n = 0;
  bool operator==(const Block&) const = default;
};

// A rank's bytes cut into equal parts regardless of dims: the `index`th of `of`, or the one of the rank's
// place on `axes`. of 1: all of them.
struct Slab {
  std::vector<AxisId> axes;
  int64_t index = 0, of = 1;
  bool operator==(const Slab&) const = default;
};

struct Form {
  Dtype dtype = Dtype::f32;
  std::vector<DimForm> dims;
  std::vector<AxisId> partials;  // over which it is a partial sum; ascending
  std::vector<AxisId> alone;     // of these: over which all members but one hold zeros
  // What is cut by exactly the axes `ring` is the part of the member `shift` places before.
  std::vector<AxisId> ring;
  int64_t shift = 0;
  // Of an op over blocks of keys, which are cut by these axes: Content::blocks says which of them are in.
  std::vector<AxisId> blocks;
  Block block;
  Slab slab;

  // A kernel can take it: the whole of a rank's part.
  bool plain() const;
  Placement placement() const;
  bool cut_by(AxisId axis) const;
  bool partial_over(AxisId axis) const;
  bool operator==(const Form&) const = default;
};

// Of a value that is cut by nothing yet.
Form form_of(Dtype dtype, std::vector<DimForm> dims);
// Of one that is placed: as far as both have dims.
Form form_of(Dtype dtype, const Dims& dims, const Placement& placement);

using FormId = uint32_t;

// All forms of a program, by number: equal ones have the same.
class Forms {
 public:
  explicit Forms(const Mesh& mesh) : mesh_(mesh) {}

  FormId id(const Form& form);
  const Form& operator[](FormId id) const { return known_[id].form; }
  // Local dims, in elements; of a slab, those of all of it.
  const std::vector<int64_t>& local(FormId id) const { return known_[id].local; }
  uint64_t bytes(FormId id) const { return known_[id].bytes; }
  // Whether the sizes divide, and no axis is used twice.
  bool sound(const Form& form) const;
  const Mesh& mesh() const { return mesh_; }
  std::string text(FormId id) const;
  std::string names(const std::vector<AxisId>& axes) const;  // "dp,tp"

 private:
  struct Known {
    Form form;
    std::vector<int64_t> local;
    uint64_t bytes = 0;
  };
  const Mesh& mesh_;
  std::vector<Known> known_;
  std::unordered_map<std::string, FormId> ids_;
};

// The dim of a form that is cut by exactly these axes last, if there is one.
std::optional<size_t> cut_last_by(const Form& form, const std::vector<AxisId>& axes);
bool partial_over_all(const Form& form, const std::vector<AxisId>& axes);
void drop_partials(Form& form, const std::vector<AxisId>& axes);
// The first dim that has more than one element on a rank: its parts lie one behind the other.
std::optional<size_t> leading_dim(const Forms& forms, FormId id);

}  // namespace tenon
