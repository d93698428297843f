#include "base/trail.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace tenon::trail {

constexpr uint32_t kMaxOwners = 256, kMaxThreads = 1024;

struct Layout {
  std::atomic<int32_t> end;  // one more than the code that was told; 0: none was
  std::atomic<uint32_t> num_owners;
  char advice[504];
  struct Owner {
    uint32_t kind;
    char name[252];
  } owners[kMaxOwners];
  // A line of the cache each: threads do not slow each other down.
  struct alignas(64) Thread {
    detail::Word word;
    std::atomic<bool> taken;
  } threads[kMaxThreads];
};

namespace {

// The trail of the process; NULL: nobody watches.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<Layout*> g_layout{nullptr};

// Function-local, so that it exists before the first use from any constructor.
std::mutex& owners_lock() {
  static std::mutex lock;
  return lock;
}

template <size_t N>
void copy_text(char (&out)[N], std::string_view text) {
  const size_t n = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

// What is kept of an owner's name.
std::string kept(std::string_view owner) {
  constexpr size_t kMost = sizeof(Layout::Owner::name) - 1;
  if (owner.size() <= kMost) return std::string(owner);
  constexpr std::string_view kCut = "...";
  owner.remove_prefix(owner.size() - (kMost - kCut.size()));
  while (!owner.empty() && (static_cast<unsigned char>(owner.front()) & 0xC0) == 0x80)
    owner.remove_prefix(1);  // half a character
  return std::string(kCut) + std::string(owner);
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

// A word that nobody reads, of a thread that found no room, or whose word in the trail may be another's by
// now: the destructors of a thread's objects make calls too. It has no destructor itself.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
constinit thread_local detail::Word t_unread{0};

// A thread's word in the trail, for as long as it lives. What it says at the end stays: exit() in a call ends
// the thread's objects before the process.
struct Claimed {
  const Layout* layout = nullptr;  // where `shared` lies
  Layout::Thread* shared = nullptr;
  ~Claimed() {
    detail::t_word = &t_unread;
    if (shared != nullptr) shared->taken.store(false, std::memory_order_release);
  }
};

Layout::Thread* free_thread(Layout& layout) {
  for (Layout::Thread& thread : layout.threads) {
    bool taken = false;
    if (!thread.taken.compare_exchange_strong(taken, true, std::memory_order_acq_rel)) continue;
    thread.word.store(0, std::memory_order_relaxed);
    return &thread;
  }
  return nullptr;
}

Error failed(const char* what) {
  return Error{"E011", std::string("shared memory: ") + what + ": " + std::strerror(errno), "", "",
               TENON_E_IO};
}

Result<Layout*> map(int fd) {
  void* const at = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return failed("mmap");
  return static_cast<Layout*>(at);  // zero, which is a valid value of all of it
}

}  // namespace

namespace detail {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
constinit thread_local Word* t_word = nullptr;

Word* claim_word() {
  thread_local Claimed mine;
  Layout* const layout = g_layout.load(std::memory_order_acquire);
  if (layout != nullptr && mine.layout != layout) {  // a process that was forked may have a trail of its own
    mine.layout = layout;
    mine.shared = free_thread(*layout);
  }
  t_word = mine.shared != nullptr ? &mine.shared->word : &t_unread;
  return t_word;
}

}  // namespace detail

uint32_t announce(std::string_view owner, uint32_t kind) {
  Layout* const layout = g_layout.load(std::memory_order_acquire);
  if (layout == nullptr) return 0;
  const std::string name = kept(owner);
  const std::lock_guard lock(owners_lock());
  const uint32_t known = std::min(layout->num_owners.load(std::memory_order_relaxed), kMaxOwners);
  for (uint32_t i = 0; i < known; ++i) {
    if (layout->owners[i].kind == kind && text_of(layout->owners[i].name) == name) return i + 1;
  }
  if (known == kMaxOwners) return 0;
  layout->owners[known].kind = kind;
  copy_text(layout->owners[known].name, name);
  layout->num_owners.store(known + 1, std::memory_order_release);
  return known + 1;
}

void tell_end(int code) {
  if (Layout* const layout = g_layout.load()) layout->end.store(code + 1);
}

void advise(std::string_view text) {
  if (Layout* const layout = g_layout.load()) copy_text(layout->advice, text);
}

Result<Shared> Shared::create() {
  const int fd = memfd_create("tenon-trail", MFD_CLOEXEC);
  if (fd < 0) return failed("memfd_create");
  if (ftruncate(fd, sizeof(Layout)) != 0) {
    Error error = failed("ftruncate");
    close(fd);
    return error;
  }
  return attach(fd);
}

Result<Shared> Shared::attach(int fd) {
  auto layout = map(fd);
  if (layout.ok()) return Shared(fd, *layout);
  close(fd);
  return std::move(layout).error();
}

Shared::Shared(Shared&& other) noexcept { *this = std::move(other); }

Shared& Shared::operator=(Shared&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(layout_, other.layout_);
  std::swap(kept_, other.kept_);
  return *this;
}

Shared::~Shared() {
  if (fd_ >= 0) close(fd_);
  if (layout_ != nullptr && !kept_) munmap(layout_, sizeof(Layout));
}

void Shared::watch() {
  kept_ = true;
  g_layout.store(layout_, std::memory_order_release);
  detail::t_word = nullptr;
}

std::optional<int> Shared::told_end() const {
  const int32_t end = layout_->end.load();
  return end > 0 ? std::optional(end - 1) : std::nullopt;
}

std::string Shared::advice() const { return text_of(layout_->advice); }

std::vector<Found> Shared::found() const {
  std::map<Step, int> threads;
  for (const Layout::Thread& thread : layout_->threads) {
    if (const Step step = thread.word.load(); step != 0) ++threads[step];
  }
  const uint32_t known = std::min(layout_->num_owners.load(), kMaxOwners);
  std::vector<Found> out;
  for (const auto& [step, count] : threads) {
    const uint64_t owner = step >> 16;
    if (owner == 0 || owner > known) continue;
    const Layout::Owner& it = layout_->owners[owner - 1];
    out.push_back({text_of(it.name), it.kind, static_cast<uint16_t>(step), count});
  }
  std::ranges::stable_sort(out, {}, &Found::threads);
  return out;
}

}  // namespace tenon::trail
