#include "base/trail.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/parallel.h"

namespace tenon::trail {
namespace {

// What a process that ran `body`, and then was no more, left.
template <class Body>
Shared left_by(Body body) {
  Shared shared = std::move(Shared::create()).value();
  const pid_t child = fork();
  if (child == 0) {
    shared.watch();
    body();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return shared;
}

std::string text_of(const std::vector<Found>& found) {
  std::string out;
  for (const Found& f : found)
    out += f.owner + "." + std::to_string(f.kind) + "." + std::to_string(f.call) + " x" +
           std::to_string(f.threads) + "\n";
  return out;
}

TEST(Trail, tells_the_innermost_call) {
  const Shared left = left_by([] {
    const Mark outer(step_of(announce("kernels/a", 3), 40));
    { const Mark ended(step_of(announce("kernels/b", 3), 8)); }
    const Mark inner(step_of(announce("comm/c", 1), 16));
    _exit(0);
  });
  EXPECT_EQ(text_of(left.found()), "comm/c.1.16 x1\n");
}

TEST(Trail, survives_exit_in_a_call) {
  const Shared left = left_by([] {
    const Mark mark(step_of(announce("kernels/a", 3), 40));
    std::exit(0);
  });
  EXPECT_EQ(text_of(left.found()), "kernels/a.3.40 x1\n");
}

TEST(Trail, is_empty_outside_of_calls) {
  const Shared left = left_by([] { const Mark ended(step_of(announce("kernels/a", 3), 40)); });
  EXPECT_EQ(text_of(left.found()), "");
  EXPECT_FALSE(left.told_end());
  EXPECT_EQ(left.advice(), "");
}

TEST(Trail, tells_every_thread_the_rarest_call_first) {
  const Shared left = left_by([] {
    std::atomic<int> inside{0};
    for (int i = 0; i < 3; ++i) {
      std::thread([&inside, i] {
        const Mark mark(i == 1 ? step_of(announce("kernels/bad", 2), 8) : step_of(announce("comm/c", 1), 16));
        ++inside;
        for (;;) pause();
      }).detach();
    }
    while (inside < 3) std::this_thread::yield();
  });
  EXPECT_EQ(text_of(left.found()), "kernels/bad.2.8 x1\ncomm/c.1.16 x2\n");
}

TEST(Trail, words_of_ended_threads_are_used_again) {
  const Shared left = left_by([] {
    for (int i = 0; i < 5000; ++i)
      std::thread([] { const Mark mark(step_of(announce("a/b", 1), 8)); }).join();
    const Mark mark(step_of(announce("c/d", 1), 8));
    _exit(0);
  });
  EXPECT_EQ(text_of(left.found()), "c/d.1.8 x1\n");
}

// Of an object that outlives the thread's word.
struct CallAtTheEnd {
  std::atomic<int>* turn = nullptr;
  ~CallAtTheEnd() {
    if (turn == nullptr) return;
    *turn = 1;
    while (*turn < 2) std::this_thread::yield();
    const Mark mark(step_of(announce("late/x", 1), 8));
    _exit(0);
  }
};

TEST(Trail, a_call_of_a_thread_that_ends_is_not_written_over_anothers) {
  const Shared left = left_by([] {
    std::atomic<int> turn{0};
    std::thread([&turn] {
      thread_local CallAtTheEnd behind;
      behind.turn = &turn;
      const Mark mark(step_of(announce("a/b", 1), 8));
    }).detach();
    while (turn < 1) std::this_thread::yield();
    std::thread([&turn] {
      const Mark mark(step_of(announce("c/d", 1), 16));  // in the word of the one that ends
      turn = 2;
      for (;;) pause();
    }).join();
  });
  EXPECT_EQ(text_of(left.found()), "c/d.1.16 x1\n");
}

TEST(Trail, of_a_long_path_the_file_is_kept) {
  const std::string folder(400, 'x');
  const Shared left = left_by([&folder] {
    const std::string path = "/" + folder + "/libtenon-kernels-mine.so";
    if (announce(path, 0) != 1 || announce(path, 0) != 1) _exit(1);  // the same again
    const Mark mark(step_of(announce(path, 0), 1));
    _exit(0);
  });
  const std::vector<Found> found = left.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].owner.starts_with("...xxx")) << found[0].owner;
  EXPECT_TRUE(found[0].owner.ends_with("x/libtenon-kernels-mine.so")) << found[0].owner;
}

TEST(Trail, of_a_long_name_no_half_character_is_kept) {
  std::string name;
  for (int i = 0; i < 200; ++i) name += "\xc3\xa9";  // two bytes each
  for (const char* end : {"", "1"}) {
    const Shared left = left_by([&] {
      const Mark mark(step_of(announce(name + end, 0), 1));
      _exit(0);
    });
    ASSERT_EQ(left.found().size(), 1u);
    EXPECT_TRUE(left.found()[0].owner.starts_with("...\xc3")) << left.found()[0].owner;
  }
}

TEST(Trail, parts_of_a_parallel_for_are_in_the_call_that_began_it) {
  const Shared left = left_by([] {
    const auto pool = ThreadPool::create(3);
    const Mark mark(step_of(announce("kernels/a", 2), 48));
    std::atomic<int> inside{0};
    (*pool)->run(
        3,
        [](void* arg, int64_t) {
          auto& all = *static_cast<std::atomic<int>*>(arg);
          ++all;
          while (all < 3) std::this_thread::yield();
          if (current() == step_of(announce("kernels/a", 2), 48)) ++all;
          while (all < 6) std::this_thread::yield();
          _exit(0);
        },
        &inside);
  });
  EXPECT_EQ(text_of(left.found()), "kernels/a.2.48 x3\n");
}

TEST(Trail, end_and_advice_are_told) {
  const Shared left = left_by([] {
    advise("tenon resume run");
    tell_end(7);
  });
  EXPECT_EQ(left.told_end(), 7);
  EXPECT_EQ(left.advice(), "tenon resume run");
}

TEST(Trail, a_new_program_goes_on_with_the_file) {
  const Shared left = left_by([] {});
  const int fd = dup(left.fd());
  const pid_t child = fork();
  if (child == 0) {
    Shared mine = std::move(Shared::attach(fd)).value();
    mine.watch();
    const Mark mark(step_of(announce("a/b", 1), 8));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(text_of(left.found()), "a/b.1.8 x1\n");
  close(fd);
}

TEST(Trail, garbage_is_not_trusted) {
  const Shared left = left_by([] {
    for (int i = 0; i < 2000; ++i) announce("a/" + std::to_string(i), 1);
    const Mark mark(~Step{0});
    _exit(0);
  });
  EXPECT_EQ(text_of(left.found()), "");
}

TEST(Trail, nobody_watches_this_process) {
  EXPECT_EQ(announce("a/b", 1), 0u);
  const Mark mark(step_of(7, 8));
  EXPECT_EQ(current(), step_of(7, 8));
}

}  // namespace
}  // namespace tenon::trail
