// What is said on stderr, and by whom.
#include "figures.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "agent_fixture.hpp"

namespace penstock {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(Counters, WhoMeetsATroubleDoesNotWriteItDown) {
  Counters counters;
  CaptureStderr();
  counters.trouble("kind", "the first");
  counters.trouble("kind", "the second, too soon");
  EXPECT_EQ(GetCapturedStderr(), "");
  EXPECT_EQ(counters.troubles().at("kind"), 2u);
  CaptureStderr();
  counters.say();
  counters.say();
  EXPECT_EQ(GetCapturedStderr(), "penstock: the first\n");
}

TEST(Counters, SentencesThatNobodyWritesDownAreBounded) {
  Counters counters(true);
  for (int i = 0; i < 1000; ++i) counters.note("note " + std::to_string(i));
  CaptureStderr();
  counters.say();
  const std::string said = GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 64);
  EXPECT_NE(said.find("note 999\n"), std::string::npos);
}

TEST(Counters, AFullStderrIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string page(4096, '.');
  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  Counters counters;
  counters.trouble("kind", "later");
  std::atomic<bool> returned{false};
  std::thread speaker([&] {
    counters.say();
    returned = true;
  });
  const bool waited_for_nobody = within(10, [&] { return returned.load(); });
  std::string drained(1 << 20, '\0');
  ASSERT_GT(::read(ends[0], drained.data(), drained.size()), 0);
  speaker.join();
  counters.say();
  const auto size = ::read(ends[0], drained.data(), drained.size());
  ::dup2(before, STDERR_FILENO);
  for (const int end : {before, ends[0], ends[1]}) ::close(end);
  EXPECT_TRUE(waited_for_nobody);
  EXPECT_EQ(drained.substr(0, static_cast<std::size_t>(std::max<ssize_t>(size, 0))), "penstock: later\n");
}

TEST_F(WithAgent, TroublesOfAnAgentAreSaid) {
  gateway->away = true;
  CaptureStderr();
  { RL4SysAgent agent(configured(), options()); }
  EXPECT_NE(GetCapturedStderr().find("penstock: away\n"), std::string::npos);
}

}  // namespace
}  // namespace penstock
