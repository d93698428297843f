#include "memory_storage.h"

#include <errno.h>

#include <algorithm>
#include <map>
#include <random>

namespace tenon::checkpoint {

using NodePtr = std::shared_ptr<MemoryStorage::Node>;

// One atomic change of names in a directory: each name gets a node, or none.
struct NameChange {
  std::vector<std::pair<std::string, NodePtr>> names;
};

struct PendingWrite {
  uint64_t offset;
  std::string data;
};

struct MemoryStorage::Node {
  FileKind kind = FileKind::kFile;
  std::string data, durable_data;
  std::vector<PendingWrite> writes;
  std::map<std::string, NodePtr> names, durable_names;
  std::vector<NameChange> changes;

  void apply(NameChange change) {
    set_names(names, change);
    changes.push_back(std::move(change));
  }
  static void set_names(std::map<std::string, NodePtr>& names, const NameChange& change) {
    for (const auto& [name, node] : change.names) {
      if (node) names[name] = node;
      if (!node) names.erase(name);
    }
  }
};

namespace {

constexpr uint64_t kSector = 512;

void put_bytes(std::string& data, uint64_t offset, const std::string& bytes) {
  if (data.size() < offset + bytes.size()) data.resize(offset + bytes.size());
  data.replace(offset, bytes.size(), bytes);
}

class Survivor {
 public:
  Survivor(Loss loss, uint64_t seed) : loss_(loss), random_(seed) {
    // How much of the unsynced survives differs from seed to seed.
    chance_ = std::uniform_real_distribution<double>(0.0, 1.0)(random_);
  }

  NodePtr copy(const MemoryStorage::Node& node) {
    auto out = std::make_shared<MemoryStorage::Node>();
    out->kind = node.kind;
    out->data = out->durable_data = file_data(node);
    auto names = loss_ == Loss::kKeepAll ? node.names : node.durable_names;
    if (loss_ == Loss::kRandom) {
      for (const NameChange& change : node.changes) {
        if (survives()) MemoryStorage::Node::set_names(names, change);
      }
    }
    for (const auto& [name, child] : names) out->names[name] = copy(*child);
    out->durable_names = out->names;
    return out;
  }

 private:
  bool survives() { return std::bernoulli_distribution(chance_)(random_); }

  std::string file_data(const MemoryStorage::Node& node) {
    if (loss_ == Loss::kKeepAll) return node.data;
    std::string data = node.durable_data;
    if (loss_ == Loss::kDropAll) return data;
    for (const PendingWrite& write : node.writes) {
      for (uint64_t at = 0; at < write.data.size(); at += kSector) {
        if (survives()) put_bytes(data, write.offset + at, write.data.substr(at, kSector));
      }
    }
    return data;
  }

  Loss loss_;
  std::mt19937_64 random_;
  double chance_ = 0.5;
};

class MemoryOutput : public OutputFile {
 public:
  MemoryOutput(NodePtr node, std::string path) : node_(std::move(node)), path_(std::move(path)) {}
  Status preallocate(uint64_t bytes) override {
    const std::string zeros(bytes > node_->data.size() ? bytes - node_->data.size() : 0, '\0');
    node_->writes.push_back({node_->data.size(), zeros});
    put_bytes(node_->data, node_->data.size(), zeros);
    return {};
  }
  Result<uint64_t> write(uint64_t offset, const void* data, uint64_t bytes) override {
    const std::string text(static_cast<const char*>(data), bytes);
    node_->writes.push_back({offset, text});
    put_bytes(node_->data, offset, text);
    return bytes;
  }
  Status sync() override {
    node_->durable_data = node_->data;
    node_->writes.clear();
    return {};
  }
  Status close() override { return {}; }

 private:
  NodePtr node_;
  std::string path_;
};

class MemoryInput : public InputFile {
 public:
  explicit MemoryInput(NodePtr node) : node_(std::move(node)) {}
  Result<uint64_t> size() override { return uint64_t{node_->data.size()}; }
  Result<uint64_t> read(uint64_t offset, void* destination, uint64_t bytes) override {
    const uint64_t size = node_->data.size();
    const uint64_t done = offset >= size ? 0 : std::min(bytes, size - offset);
    std::copy_n(node_->data.data() + (done == 0 ? 0 : offset), done, static_cast<char*>(destination));
    return done;
  }

 private:
  NodePtr node_;
};

}  // namespace

MemoryStorage::MemoryStorage() : root_(std::make_shared<Node>()) { root_->kind = FileKind::kDirectory; }
MemoryStorage::~MemoryStorage() = default;
MemoryStorage::MemoryStorage(MemoryStorage&&) noexcept = default;
MemoryStorage& MemoryStorage::operator=(MemoryStorage&&) noexcept = default;

MemoryStorage MemoryStorage::after_power_loss(Loss loss, uint64_t seed) const {
  MemoryStorage out;
  out.root_ = Survivor(loss, seed).copy(*root_);
  return out;
}

NodePtr MemoryStorage::find(const std::string& path) const {
  NodePtr node = root_;
  size_t start = 1;
  while (node && start < path.size()) {
    const size_t end = std::min(path.find('/', start), path.size());
    const auto found = node->names.find(path.substr(start, end - start));
    node = found == node->names.end() ? nullptr : found->second;
    start = end + 1;
  }
  return node;
}

NodePtr MemoryStorage::parent(const std::string& path) const {
  const NodePtr node = find(parent_of(path));
  return node && node->kind == FileKind::kDirectory ? node : nullptr;
}

std::string* MemoryStorage::content(const std::string& path) {
  const NodePtr node = find(path);
  return node && node->kind == FileKind::kFile ? &node->data : nullptr;
}

void MemoryStorage::put(const std::string& path, std::string content) {
  auto node = std::make_shared<Node>();
  node->data = node->durable_data = std::move(content);
  parent(path)->apply({{{base_name(path), node}}});
}

void MemoryStorage::make_link(const std::string& path) {
  auto node = std::make_shared<Node>();
  node->kind = FileKind::kLink;
  parent(path)->apply({{{base_name(path), node}}});
}

Status MemoryStorage::make_directory(const std::string& path) {
  const NodePtr directory = parent(path);
  if (!directory) return storage_error("make directory", path, ENOENT);
  if (find(path)) return storage_error("make directory", path, EEXIST);
  auto node = std::make_shared<Node>();
  node->kind = FileKind::kDirectory;
  directory->apply({{{base_name(path), node}}});
  return {};
}

Result<std::unique_ptr<OutputFile>> MemoryStorage::create(const std::string& path) {
  const NodePtr directory = parent(path);
  if (!directory) return storage_error("create", path, ENOENT);
  if (find(path)) return storage_error("create", path, EEXIST);
  auto node = std::make_shared<Node>();
  directory->apply({{{base_name(path), node}}});
  return std::unique_ptr<OutputFile>(std::make_unique<MemoryOutput>(node, path));
}

Result<std::unique_ptr<InputFile>> MemoryStorage::open(const std::string& path) {
  const NodePtr node = find(path);
  if (!node) return storage_error("open", path, ENOENT);
  if (node->kind != FileKind::kFile) return storage_error("open", path, ELOOP);
  return std::unique_ptr<InputFile>(std::make_unique<MemoryInput>(node));
}

Status MemoryStorage::sync_directory(const std::string& path) {
  const NodePtr node = find(path);
  if (!node || node->kind != FileKind::kDirectory) return storage_error("sync directory", path, ENOENT);
  node->durable_names = node->names;
  node->changes.clear();
  return {};
}

Status MemoryStorage::rename(const std::string& from, const std::string& to) {
  const NodePtr node = find(from), target = find(to), directory = parent(from);
  if (!node || !directory) return storage_error("rename", from, ENOENT);
  if (parent(to) != directory) return storage_error("rename", from, EXDEV);
  if (target && !target->names.empty()) return storage_error("rename", from, ENOTEMPTY);
  directory->apply({{{base_name(from), nullptr}, {base_name(to), node}}});
  return {};
}

Status MemoryStorage::exchange(const std::string& one, const std::string& other) {
  const NodePtr first = find(one), second = find(other), directory = parent(one);
  if (!first || !second) return storage_error("exchange", other, ENOENT);
  if (parent(other) != directory) return storage_error("exchange", other, EXDEV);
  directory->apply({{{base_name(one), second}, {base_name(other), first}}});
  return {};
}

Status MemoryStorage::unlink(const std::string& path, FileKind kind) {
  const NodePtr node = find(path);
  if (!node) return storage_error("remove", path, ENOENT);
  if ((node->kind == FileKind::kDirectory) != (kind == FileKind::kDirectory)) {
    return storage_error("remove", path, EISDIR);
  }
  if (!node->names.empty()) return storage_error("remove", path, ENOTEMPTY);
  parent(path)->apply({{{base_name(path), nullptr}}});
  return {};
}

Status MemoryStorage::remove_file(const std::string& path) { return unlink(path, FileKind::kFile); }
Status MemoryStorage::remove_directory(const std::string& path) { return unlink(path, FileKind::kDirectory); }

Result<std::vector<std::string>> MemoryStorage::list(const std::string& path) {
  const NodePtr node = find(path);
  if (!node || node->kind != FileKind::kDirectory) return storage_error("list", path, ENOTDIR);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->names) names.push_back(name);
  return names;
}

Result<FileKind> MemoryStorage::kind(const std::string& path) {
  const NodePtr node = find(path);
  return node ? node->kind : FileKind::kMissing;
}

}  // namespace tenon::checkpoint
