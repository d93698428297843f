#include "cli/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "run/checkpoint/storage.h"

namespace tenon::cli {
namespace {

Error no_folder(const std::string& path) {
  return Error{"E011", fmt::format("cannot open {}: {}", path, std::strerror(errno)), "", "", TENON_E_IO};
}

Error taken(const std::string& path) {
  if (errno != EWOULDBLOCK)
    return Error{"E011", fmt::format("cannot lock {}: {}", path, std::strerror(errno)), "",
                 "choose a folder of a file system with locks (flock)", TENON_E_IO};
  return Error{"R027", "another process trains in " + path, "",
               "wait for its end, or stop it; or train in another folder", TENON_E_STATE};
}

Status replace(checkpoint::Storage& storage, const std::string& folder, const std::string& name,
               const std::string& text) {
  const std::string partial = folder + "/" + name + ".partial";
  TENON_TRY(const checkpoint::FileKind left, storage.kind(partial));  // by a process that died
  if (left != checkpoint::FileKind::kMissing) TENON_CHECK(storage.remove_file(partial));
  return checkpoint::write_whole(storage, folder, name, text);
}

}  // namespace

Result<RunFolder> RunFolder::take(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return no_folder(path);
  RunFolder out(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return taken(path);
  return out;
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

RunFolder::~RunFolder() {
  if (fd_ >= 0) close(fd_);
}

Status RunFolder::check_in_place() const {
  struct stat ours {
  }, there{};
  const bool same = fstat(fd_, &ours) == 0 && stat(path_.c_str(), &there) == 0 &&
                    ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
  if (same && access((path_ + "/run.json").c_str(), F_OK) == 0) return {};
  return Error{"E014", "the folder of the run was moved or removed, or its run.json, while it trained", path_,
               "leave it in place until the run has ended", TENON_E_IO};
}

Status write_durably(const std::string& folder, const std::string& name, const std::string& text) {
  checkpoint::PosixStorage storage;
  Status done = replace(storage, folder, name, text);
  if (done.ok()) return done;
  return Error{"E011", "cannot write " + folder + "/" + name + ": " + done.error().cause, "",
               done.error().fix, TENON_E_IO};
}

}  // namespace tenon::cli
