// What happens beside the application: versions, deltas, lost answers, full queues, the spool.
#include <nlohmann/json.hpp>

#include "agent_fixture.hpp"
#include "delta.hpp"

namespace penstock {
namespace {

// A delta that changes nothing: all differences are zero.
v1::FetchReply still(const Tensors& tensors, Version base, Version version) {
  std::size_t size = 0;
  for (const auto& [name, tensor] : tensors) size += tensor.bytes.size();
  v1::FetchReply reply;
  reply.set_kind(v1::FetchReply::DELTA);
  reply.mutable_version()->set_epoch(version.epoch);
  reply.mutable_version()->set_step(version.step);
  reply.mutable_base()->set_epoch(base.epoch);
  reply.mutable_base()->set_step(base.step);
  reply.set_base_sha256(weights_sha256(tensors));
  reply.set_weights_sha256(weights_sha256(tensors));
  reply.set_part(squeezed(std::string(size, '\0')));
  reply.set_payload_bytes(reply.part().size());
  reply.set_raw_bytes(size);
  return reply;
}

TEST_F(WithAgent, VersionsComeInAndNeverGoBack) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  gateway->publish({1, 5}, fresh_policy(8, 4, 5));
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 5}; }));
  gateway->publish({1, 3}, fresh_policy(8, 4, 3));
  const int before = gateway->fetches;
  ASSERT_TRUE(within(10, [&] { return gateway->fetches > before + 2; }));
  EXPECT_EQ(agent.version(), (Version{1, 5}));
}

TEST_F(WithAgent, AnotherRunIsNoticedAndItsVersionsTaken) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  gateway->publish({1, 57}, fresh_policy(8, 4, 5));
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 57}; }));
  gateway->begin_again("run-2", {1, 0}, fresh_policy(8, 4, 6));
  EXPECT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  EXPECT_EQ(gateway->opens, 2);
}

TEST_F(WithAgent, ADeltaIsApplied) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  gateway->set_delta(still(fresh_policy(8, 4, 1), {1, 0}, {1, 1}));
  EXPECT_TRUE(within(10, [&] { return agent.version() == Version{1, 1}; }));
  EXPECT_EQ(gateway->wholes, 1);
}

TEST_F(WithAgent, ADeltaThatDoesNotApplyIsFollowedByTheWhole) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  auto broken = still(fresh_policy(8, 4, 1), {1, 0}, {1, 1});
  broken.set_weights_sha256(std::string(64, '0'));
  gateway->set_delta(broken);
  ASSERT_TRUE(within(10, [&] { return gateway->wholes == 2; }));
  auto foreign = still(fresh_policy(8, 4, 1), {1, 7}, {1, 8});
  gateway->set_delta(foreign);
  ASSERT_TRUE(within(10, [&] { return gateway->wholes == 3; }));
  EXPECT_EQ(agent.version(), (Version{1, 0}));
  EXPECT_EQ(agent.figures().troubles.at("delta"), 2u);
}

TEST_F(WithAgent, DamagedVersionsAreNotUsed) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 0}; }));
  auto infinite = fresh_policy(8, 4, 2);
  const float number = INFINITY;
  std::memcpy(infinite.at("policy/output/bias").bytes.data(), &number, 4);
  gateway->publish({1, 1}, infinite);
  ASSERT_TRUE(within(10, [&] { return agent.figures().troubles["damaged"] >= 1; }));
  gateway->publish({1, 2}, fresh_policy(9, 4, 2));  // another shape than described
  ASSERT_TRUE(within(10, [&] { return agent.figures().troubles["damaged"] >= 2; }));
  EXPECT_EQ(agent.version(), (Version{1, 0}));
  gateway->publish({1, 3}, fresh_policy(8, 4, 3));
  EXPECT_TRUE(within(20, [&] { return agent.version() == Version{1, 3}; }));
}

TEST_F(WithAgent, ALostAnswerIsNoSecondTrajectory) {
  RL4SysAgent agent(configured(), options());
  gateway->lost_answers = 2;
  TrajectoryPtr trajectory;
  for (int i = 0; i < 5; ++i) agent.mark_end_of_trajectory(trajectory, step(agent, trajectory, i));
  ASSERT_TRUE(within(20, [&] { return agent.figures().sent == 5; }));
  EXPECT_EQ(gateway->stored(5).size(), 5u);
  EXPECT_GE(gateway->duplicates, 1);
  EXPECT_EQ(agent.figures().waiting_trajectories, 0u);
}

TEST_F(WithAgent, WhatAFullGatewayDoesNotTakeWaits) {
  gateway->full = true;
  RL4SysAgent agent(configured(), options());
  TrajectoryPtr trajectory;
  for (int i = 0; i < 3; ++i) agent.mark_end_of_trajectory(trajectory, step(agent, trajectory));
  ASSERT_TRUE(within(10, [&] { return agent.figures().waiting_trajectories == 3; }));
  gateway->full = false;
  EXPECT_EQ(gateway->stored(3).size(), 3u);
}

TEST_F(WithAgent, TheKillSwitchIsSeenWhileASendHangs) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  gateway->hang(true);
  TrajectoryPtr trajectory;
  agent.mark_end_of_trajectory(trajectory, step(agent, trajectory));
  ASSERT_TRUE(within(10, [&] { return gateway->sends > 0; }));
  std::filesystem::create_directories(home.path / "clients");
  home.write("clients/off", "");
  EXPECT_TRUE(within(10, [&] { return agent.is_off(); }));
  gateway->hang(false);
}

TEST_F(WithAgent, WhatIsLeftAtTheEndIsDeliveredByTheNextProcessOnce) {
  {
    RL4SysAgent agent(configured(), options());
    ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
    gateway->away = true;
    TrajectoryPtr trajectory;
    for (int i = 0; i < 4; ++i) agent.mark_end_of_trajectory(trajectory, step(agent, trajectory, i));
    agent.close(0.2);
  }
  EXPECT_TRUE(gateway->stored(0).empty());
  gateway = std::make_shared<ServedGateway>(8, 4);
  RL4SysAgent heir(configured(), options());
  const auto found = gateway->stored(4);
  ASSERT_EQ(found.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i].sequence(), i + 1);
}

TEST_F(WithAgent, AFullSpoolDropsTheOldestAndCounts) {
  gateway->away = true;
  auto configuration = configured();
  configuration.spool_bytes = 2000;
  RL4SysAgent agent(configuration, options());
  TrajectoryPtr trajectory;
  for (int i = 0; i < 40; ++i) agent.mark_end_of_trajectory(trajectory, step(agent, trajectory));
  ASSERT_TRUE(within(10, [&] {
    const auto figures = agent.figures();
    const auto dropped = figures.dropped.count("spool_full") ? figures.dropped.at("spool_full") : 0;
    // until all have left memory for the spool, they weigh more
    return dropped > 0 && dropped + figures.waiting_trajectories == 40 && figures.waiting_bytes <= 2000;
  }));
}

TEST_F(WithAgent, ClosingDoesNotWaitForALongPoll) {
  auto configuration = configured();
  configuration.poll_seconds = 30;
  RL4SysAgent agent(configuration, options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  const auto started = std::chrono::steady_clock::now();
  agent.close(1.0);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

// Under the thread sanitizer this is the test of the swap: versions come while the application decides.
TEST_F(WithAgent, DecidingSwappingAndSendingAtOnce) {
  RL4SysAgent agent(configured(R"(, "max_traj_length": 50)"), options());
  std::atomic<bool> over{false};
  std::thread publisher([&] {
    for (std::uint64_t i = 1; !over; ++i) {
      gateway->publish({1, i}, fresh_policy(8, 4, i));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::thread watcher([&] {
    while (!over) {
      agent.figures();
      agent.version();
      agent.off();
      agent.on();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  TrajectoryPtr trajectory;
  std::uint64_t ended = 0;
  const auto swapped = [&] {
    for (int i = 0; i < 100; ++i) {
      const Action action = step(agent, trajectory);
      if (i % 10 == 9) agent.mark_end_of_trajectory(trajectory, action), ++ended;
    }
    return agent.figures().swaps >= 20;
  };
  EXPECT_TRUE(within(60, swapped));
  over = true;
  publisher.join();
  watcher.join();
  agent.close();
  const auto figures = agent.figures();
  std::uint64_t dropped = 0;
  for (const auto& [reason, count] : figures.dropped) dropped += count;
  EXPECT_EQ(figures.sent + dropped + figures.waiting_trajectories, ended);
}

}  // namespace
}  // namespace penstock
