// What every Storage shares: whole reads and writes, paths, removal.
#include "run/checkpoint/storage.h"

#include <errno.h>

#include <cstring>
#include <system_error>

#include "run/checkpoint/errors.h"

namespace tenon::checkpoint {
namespace {

constexpr int kMaxDepth = 16;

Status remove_below(Storage& storage, const std::string& path, int depth) {
  TENON_TRY(const FileKind kind, storage.kind(path));
  if (kind != FileKind::kDirectory) return storage.remove_file(path);
  if (depth == kMaxDepth) return storage_error("remove: nested too deep", path, ELOOP);
  TENON_TRY(const std::vector<std::string> names, storage.list(path));
  for (const std::string& name : names) TENON_CHECK(remove_below(storage, path + "/" + name, depth + 1));
  return storage.remove_directory(path);
}

std::string fix_of(int errno_value) {
  if (errno_value == ENOSPC || errno_value == EDQUOT) return "free space, or save to another disk";
  if (errno_value == EACCES || errno_value == EPERM || errno_value == EROFS) return "check the permissions";
  return "";
}

}  // namespace

Error storage_error(const std::string& operation, const std::string& path, int errno_value) {
  const std::string text = std::generic_category().message(errno_value);
  return Error{kStorageFailed, "cannot " + operation + ": " + text, path, fix_of(errno_value), TENON_E_IO};
}

Status write_all(OutputFile& file, const std::string& path, uint64_t offset, const void* data,
                 uint64_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    TENON_TRY(const uint64_t taken,
              file.write(offset + done, static_cast<const char*>(data) + done, bytes - done));
    if (taken == 0 || taken > bytes - done) return storage_error("write", path, EIO);
    done += taken;
  }
  return {};
}

Status write_whole(Storage& storage, const std::string& folder, const std::string& name,
                   const std::string& text) {
  const std::string path = folder + "/" + name, partial = path + ".partial";
  TENON_TRY(const std::unique_ptr<OutputFile> file, storage.create(partial));
  TENON_CHECK(file->preallocate(text.size()));
  TENON_CHECK(write_all(*file, partial, 0, text.data(), text.size()));
  TENON_CHECK(file->sync());
  TENON_CHECK(file->close());
  TENON_CHECK(storage.rename(partial, path));
  return storage.sync_directory(folder);
}

Status read_all(InputFile& file, const std::string& path, uint64_t offset, void* destination,
                uint64_t bytes) {
  TENON_TRY(const uint64_t done, file.read(offset, destination, bytes));
  if (done == bytes) return {};
  return damaged(kBadShard,
                 "the file ends at byte " + std::to_string(offset + done) + ", " +
                     std::to_string(offset + bytes) + " are needed",
                 path);
}

Status make_path(Storage& storage, const std::string& path) {
  TENON_TRY(const FileKind kind, storage.kind(path));
  // A link is left to the system: it may well lead to a directory.
  if (kind == FileKind::kDirectory || kind == FileKind::kLink) return {};
  const std::string parent = parent_of(path);
  if (kind == FileKind::kMissing && parent != path) TENON_CHECK(make_path(storage, parent));
  TENON_CHECK(storage.make_directory(path));
  return storage.sync_directory(parent);
}

Status remove_tree(Storage& storage, const std::string& path) { return remove_below(storage, path, 0); }

std::string base_name(const std::string& path) {
  const std::string clean = trimmed(path);
  return clean.substr(clean.find_last_of('/') + 1);
}

std::string parent_of(const std::string& path) {
  const std::string clean = trimmed(path);
  const size_t slash = clean.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : trimmed(clean.substr(0, slash));
}

std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace tenon::checkpoint
