// Tensors of a run that the embedding program looks at in place, as DLPack; and which of them it still does.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/types.h"
#include "tenon/dlpack.h"

namespace tenon::embed {

struct ViewOf {
  std::string name;
  void* data = nullptr;
  DLDevice device{};
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
};

class Views {
 public:
  // A dense read-only view; its deleter may be called on any thread, even when *this is gone.
  DLManagedTensorVersioned* make(const ViewOf& of);
  // TENON_E_STATE, naming a live view, while there is one: `what` ("a step") would change or free its bytes.
  Status none_live(const std::string& what) const;

 private:
  struct Live {
    mutable std::mutex mutex;
    std::map<std::string, int> count;  // by tensor
  };
  struct View;
  static void release(DLManagedTensorVersioned* self);

  std::shared_ptr<Live> live_ = std::make_shared<Live>();
};

}  // namespace tenon::embed
