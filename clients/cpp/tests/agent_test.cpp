// The verbs, and who decides when.
#include <cmath>

#include "agent_fixture.hpp"
#include "heads.hpp"
#include "network.hpp"

namespace penstock {
namespace {

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> numbers(bytes.size() / 4);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

TEST_F(WithAgent, ATrajectoryArrivesAsItWas) {
  RL4SysAgent agent(configured(), options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  TrajectoryPtr trajectory;
  std::vector<std::int32_t> acts;
  for (int i = 0; i < 5; ++i) {
    observation[0] = 0.1f * static_cast<float>(i);
    acts.push_back(step(agent, trajectory, i).act());
  }
  auto [now, last] = agent.request_for_action(trajectory, observation);
  last.update_reward(9);
  agent.mark_end_of_trajectory(now, last);
  acts.push_back(last.act());
  EXPECT_TRUE(now->is_completed());
  const auto stored = gateway->stored(1);
  ASSERT_EQ(stored.size(), 1u);
  const auto& found = stored[0];
  EXPECT_EQ(found.length(), 6u);
  EXPECT_EQ(found.version().epoch(), 1u);
  EXPECT_TRUE(found.terminated());
  EXPECT_TRUE(found.foreign().empty());
  EXPECT_EQ(floats(found.rewards()), (std::vector<float>{0, 1, 2, 3, 4, 9}));
  EXPECT_EQ(std::memcmp(found.actions().data(), acts.data(), acts.size() * 4), 0);
  // log-probabilities are those of the policy the gateway gave out
  const Description description = description_of(gateway->description);
  const Network network(description, fresh_policy(8, 4, 1));
  Scratch scratch;
  network.prepare(scratch);
  const auto seen = floats(found.observations().at("observations"));
  const auto log_probs = floats(found.log_probs());
  for (std::size_t i = 0; i < 6; ++i) {
    const float* row = &seen[8 * i];
    float logits[4];
    network.outputs(&row, logits, scratch);
    EXPECT_NEAR(log_probs[i], log_prob(description, logits, nullptr, {&acts[i], nullptr}), 1e-5f);
  }
}

TEST_F(WithAgent, MistakesOfTheCallerAreSaid) {
  RL4SysAgent agent(configured(), options());
  TrajectoryPtr trajectory;
  EXPECT_THROW(agent.request_for_action(trajectory, std::vector<float>(7)), UsageError);
  EXPECT_THROW(agent.request_for_action(trajectory, std::vector<float>(8, NAN)), UsageError);
  EXPECT_THROW(agent.request_for_action(trajectory, observation, std::vector<std::uint8_t>(4, 1)), UsageError);
  auto [now, action] = agent.request_for_action(trajectory, observation);
  agent.add_to_trajectory(now, action);
  EXPECT_THROW(agent.add_to_trajectory(now, action), UsageError);
  EXPECT_THROW(agent.request_for_action(now, observation), UsageError);  // no reward yet
  for (const double wrong : {double{INFINITY}, double{NAN}, 1.1e9, -1.1e9})
    EXPECT_THROW(action.update_reward(wrong), UsageError) << wrong;
  action.update_reward(1);
  auto [other, strange] = agent.request_for_action(nullptr, observation);
  EXPECT_THROW(agent.add_to_trajectory(now, strange), UsageError);
  agent.mark_end_of_trajectory(now, action);
  EXPECT_THROW(agent.mark_end_of_trajectory(now, action), UsageError);
  EXPECT_THROW(agent.add_to_trajectory(now, action), UsageError);
  agent.close();
  EXPECT_THROW(action.update_reward(2), UsageError);
  EXPECT_THROW(agent.request_for_action(nullptr, observation), UsageError);
}

TEST_F(WithAgent, AnOldActionIsNotTakenForTheNewest) {
  RL4SysAgent agent(configured(), options());
  auto [trajectory, old] = agent.request_for_action(nullptr, observation);
  auto [same, newest] = agent.request_for_action(trajectory, observation);
  ASSERT_EQ(trajectory, same);
  EXPECT_THROW(agent.add_to_trajectory(trajectory, old), UsageError);
  EXPECT_THROW(agent.mark_end_of_trajectory(trajectory, old), UsageError);
  EXPECT_THROW(old.update_reward(1), UsageError);
  EXPECT_THROW(old.did(1), UsageError);
  EXPECT_THROW(old.reward(), UsageError);
  agent.add_to_trajectory(trajectory, newest);
  EXPECT_THROW(agent.mark_end_of_trajectory(trajectory, old), UsageError);
  newest.update_reward(2);
  auto [still, last] = agent.request_for_action(trajectory, observation);
  newest.update_reward(3);  // it was added: its row stays its own
  last.update_reward(4);
  agent.mark_end_of_trajectory(still, last);
  EXPECT_EQ(floats(gateway->stored(1).at(0).rewards()), (std::vector<float>{3, 4}));
}

TEST_F(WithAgent, ATrajectoryIsNotEndedByAnothersAction) {
  RL4SysAgent agent(configured(), options());
  auto [first, of_first] = agent.request_for_action(nullptr, observation);
  auto [second, of_second] = agent.request_for_action(nullptr, observation);
  EXPECT_THROW(agent.mark_end_of_trajectory(second, of_first), UsageError);
  EXPECT_FALSE(second->is_completed());
  of_second.update_reward(5);
  agent.mark_end_of_trajectory(second, of_second);
  EXPECT_EQ(floats(gateway->stored(1).at(0).rewards()), std::vector<float>{5});
}

TEST_F(WithAgent, ARewardMayComeAfterTheEndButNotNever) {
  RL4SysAgent agent(configured(), options());
  TrajectoryPtr trajectory;
  auto [first, action] = agent.request_for_action(trajectory, observation);
  agent.add_to_trajectory(first, action);
  agent.mark_end_of_trajectory(first, action);
  action.update_reward(3);
  auto [second, forgotten] = agent.request_for_action(first, observation);
  EXPECT_NE(first, second);
  EXPECT_EQ(floats(gateway->stored(1).at(0).rewards()), std::vector<float>{3});
  agent.add_to_trajectory(second, forgotten);
  agent.mark_end_of_trajectory(second, forgotten);
  EXPECT_THROW(agent.request_for_action(second, observation), UsageError);
  EXPECT_NO_THROW(agent.request_for_action(second, observation));
}

TEST_F(WithAgent, LongEpisodesAreCutWithWhatCameNext) {
  RL4SysAgent agent(configured(R"(, "max_traj_length": 3)"), options());
  TrajectoryPtr trajectory;
  for (int i = 0; i < 4; ++i) {
    observation[0] = static_cast<float>(i);
    step(agent, trajectory);
  }
  const auto found = gateway->stored(1).at(0);
  EXPECT_EQ(found.length(), 3u);
  EXPECT_FALSE(found.terminated());
  EXPECT_EQ(floats(found.final_observations().at("observations"))[0], 3.0f);
  EXPECT_EQ(trajectory->length(), 1u);
}

TEST_F(WithAgent, ATruncatedEndWithoutAFinalObservationGivesUpItsLastRow) {
  RL4SysAgent agent(configured(), options());
  TrajectoryPtr trajectory;
  step(agent, trajectory);
  observation[0] = 7;
  const Action last = step(agent, trajectory);
  agent.mark_end_of_trajectory(trajectory, last, true);
  auto found = gateway->stored(1).at(0);
  EXPECT_EQ(found.length(), 1u);
  EXPECT_EQ(floats(found.final_observations().at("observations"))[0], 7.0f);
  const Action only = step(agent, trajectory);
  agent.mark_end_of_trajectory(trajectory, only, true, std::vector<float>(8, 2.0f));
  found = gateway->stored(2).at(1);
  EXPECT_EQ(found.length(), 1u);
  EXPECT_EQ(floats(found.final_observations().at("observations"))[0], 2.0f);
}

TEST_F(WithAgent, WithoutAPolicyTheHeuristicDecidesThenTheSafeAction) {
  gateway->away = true;
  int asked = 0;
  RL4SysAgent agent(configured(R"(, "fallback": {"action": 2})"), options([&](View<float>, View<std::uint8_t>) {
                      if (++asked > 2) throw std::runtime_error("out of ideas");
                      return std::vector<float>{3.0f};
                    }));
  TrajectoryPtr trajectory;
  std::vector<int> acts;
  for (int i = 0; i < 4; ++i) acts.push_back(step(agent, trajectory).act());
  EXPECT_EQ(acts, (std::vector<int>{3, 3, 2, 2}));
  const auto figures = agent.figures();
  EXPECT_EQ(figures.fallbacks.at("heuristic"), 2u);
  EXPECT_EQ(figures.fallbacks.at("safe"), 2u);
  EXPECT_EQ(figures.troubles.at("heuristic"), 2u);
  gateway->away = false;
  ASSERT_TRUE(within(20, [&] { return agent.version().has_value(); }));
  const Action action = step(agent, trajectory);
  EXPECT_FALSE(action.foreign());
  agent.mark_end_of_trajectory(trajectory, action);
  EXPECT_EQ(gateway->stored(1).at(0).foreign(), std::string("\1\1\1\1\0", 5));
}

TEST_F(WithAgent, TheKillSwitchTakesThePolicysSay) {
  RL4SysAgent agent(configured(R"(, "fallback": {"action": 1})"), options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  TrajectoryPtr trajectory;
  EXPECT_FALSE(step(agent, trajectory).foreign());
  agent.off();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step(agent, trajectory).act(), 1);
  agent.on();
  EXPECT_FALSE(step(agent, trajectory).foreign());
  std::filesystem::create_directories(home.path / "clients");
  home.write("clients/test.off", "");
  ASSERT_TRUE(within(10, [&] { return agent.is_off(); }));
  EXPECT_TRUE(step(agent, trajectory).foreign());
  std::filesystem::remove(home.path / "clients" / "test.off");
  EXPECT_TRUE(within(10, [&] { return !agent.is_off(); }));
}

TEST_F(WithAgent, InShadowModeTheApplicationSaysWhatItDid) {
  RL4SysAgent agent(configured(R"(, "mode": "shadow")"), options());
  TrajectoryPtr trajectory;
  auto [now, action] = agent.request_for_action(trajectory, observation);
  EXPECT_FALSE(action.told());
  EXPECT_THROW(agent.add_to_trajectory(now, action), UsageError);
  EXPECT_THROW(action.did(4), UsageError);
  action.did(3);
  action.update_reward(1);
  agent.mark_end_of_trajectory(now, action);
  const auto found = gateway->stored(1).at(0);
  EXPECT_EQ(found.foreign(), "\1");
  EXPECT_EQ(found.actions(), std::string("\3\0\0\0", 4));
}

TEST_F(WithAgent, TheShortFormAddsUpRewards) {
  Agent agent(configured(), options());
  EXPECT_THROW(agent.reward(1), UsageError);
  agent.act(observation);
  agent.reward(1);
  agent.reward(2.5);
  agent.act(observation);
  agent.reward(1);
  agent.end();
  EXPECT_EQ(floats(gateway->stored(1).at(0).rewards()), (std::vector<float>{3.5f, 1.0f}));
}

TEST_F(WithAgent, RemoteDecisionsFallBackWhenTheGatewayIsAway) {
  RL4SysAgent agent(configured(R"(, "inference": "remote", "fallback": {"action": 2})"), options());
  TrajectoryPtr trajectory;
  EXPECT_EQ(step(agent, trajectory).act(), 1);
  gateway->away = true;
  EXPECT_EQ(step(agent, trajectory).act(), 2);
  EXPECT_EQ(agent.figures().fallbacks.at("safe"), 1u);
}

TEST_F(WithAgent, AGatewayThatDoesNotAnswerIsNotAskedEveryTime) {
  RL4SysAgent agent(configured(R"(, "inference": "remote", "fallback": {"action": 2})"), options());
  TrajectoryPtr trajectory;
  gateway->away = true;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(step(agent, trajectory).act(), 2);
  EXPECT_LT(gateway->acts, 500);
  gateway->away = false;
  EXPECT_TRUE(within(20, [&] { return step(agent, trajectory).act() == 1; }));
}

TEST_F(WithAgent, RemoteNumbersThatAreNotFiniteAreNotTaken) {
  gateway = std::make_shared<ServedGateway>(box_description_text(8), fresh_box_policy(8, 1));
  const float numbers[2] = {0.5f, NAN};
  gateway->remote_action = std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
  auto configuration = parse_configuration(
      R"({"client_id": "test", "algorithm_name": "PPO", "continuous": true, "inference": "remote",
          "fallback": {"action": [0.25, -0.25]}, "algorithm_parameters": {"input_size": 8, "act_dim": 2}})");
  configuration.deadline_seconds = 5.0;
  RL4SysAgent agent(configuration, options());
  TrajectoryPtr trajectory;
  const Action action = step(agent, trajectory);
  EXPECT_TRUE(action.foreign());
  EXPECT_EQ(action.values()[1], -0.25f);
}

TEST_F(WithAgent, MaskedActionsAreNeverTaken) {
  gateway = std::make_shared<ServedGateway>(8, 4, true);
  RL4SysAgent agent(configured(R"(, "masked": true)"), options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  TrajectoryPtr trajectory;
  const std::vector<std::uint8_t> mask = {0, 0, 1, 0};
  EXPECT_THROW(agent.request_for_action(trajectory, observation, std::vector<std::uint8_t>(4, 0)), UsageError);
  for (int i = 0; i < 50; ++i) {
    auto [now, action] = agent.request_for_action(trajectory, observation, mask);
    trajectory = now;
    EXPECT_EQ(action.act(), 2);
  }
  agent.off();
  EXPECT_EQ(agent.request_for_action(trajectory, observation, mask).action.act(), 2);
}

TEST_F(WithAgent, NumbersAreRecordedRawAndActedWithinTheirBounds) {
  gateway = std::make_shared<ServedGateway>(box_description_text(8), fresh_box_policy(8, 1));
  auto configuration = parse_configuration(
      R"({"client_id": "test", "algorithm_name": "PPO", "continuous": true, "send_frequency": 1,
          "fallback": {"action": [0.25, -0.25]}, "algorithm_parameters": {"input_size": 8, "act_dim": 2}})");
  configuration.deadline_seconds = 5.0;
  RL4SysAgent agent(configuration, options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  TrajectoryPtr trajectory;
  std::vector<float> acted;
  for (int i = 0; i < 100; ++i) {
    const Action action = step(agent, trajectory);
    acted.insert(acted.end(), action.values().begin(), action.values().end());
  }
  agent.off();
  Action last = step(agent, trajectory);
  EXPECT_EQ(last.values()[0], 0.25f);
  EXPECT_TRUE(last.foreign());
  EXPECT_THROW(last.did(std::vector<float>{1.0f}), UsageError);
  last.did(std::vector<float>{0.5f, 3.0f});
  agent.mark_end_of_trajectory(trajectory, last);
  const auto found = gateway->stored(1).at(0);
  const auto raw = floats(found.actions());
  const auto log_probs = floats(found.log_probs());
  const auto seen = floats(found.observations().at("observations"));
  ASSERT_EQ(raw.size(), 202u);
  EXPECT_EQ(raw[201], 3.0f);
  const Description description = description_of(gateway->description);
  const Network network(description, fresh_box_policy(8, 1));
  Scratch scratch;
  network.prepare(scratch);
  bool cut = false;
  for (std::size_t i = 0; i < 100; ++i) {
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(acted[2 * i + k], std::clamp(raw[2 * i + k], -1.0f, 1.0f));
      cut = cut || raw[2 * i + k] != acted[2 * i + k];
    }
    const float* row = &seen[8 * i];
    float outputs[4], action[2] = {raw[2 * i], raw[2 * i + 1]};
    network.outputs(&row, outputs, scratch);
    EXPECT_NEAR(log_probs[i], log_prob(description, outputs, nullptr, {nullptr, action}), 1e-4f);
  }
  EXPECT_TRUE(cut) << "a deviation of 1.6 must have left the bounds in 100 draws";
}

TEST_F(WithAgent, NumbersThatAreNotFiniteFallBackToTheVersionBefore) {
  RL4SysAgent agent(configured(R"(, "fallback": {"action": 2})"), options());
  ASSERT_TRUE(within(10, [&] { return agent.version().has_value(); }));
  TrajectoryPtr trajectory;
  step(agent, trajectory);
  // finite weights whose products are not
  auto wild = fresh_policy(8, 4, 2);
  wild.at("policy/output/weight") = tensor_of({64, 4}, std::vector<float>(256, 3e38f));
  gateway->publish({1, 1}, wild);
  ASSERT_TRUE(within(10, [&] { return agent.version() == Version{1, 1}; }));
  EXPECT_FALSE(step(agent, trajectory).foreign());
  EXPECT_EQ(agent.figures().fallbacks.at("previous"), 1u);
  EXPECT_EQ(agent.figures().troubles.at("policy"), 1u);
}

TEST_F(WithAgent, RefusalsOfTheGatewayAreThrownByTheConstructor) {
  gateway->refusal = "the gateway at x refuses: gama is unknown";
  EXPECT_THROW(RL4SysAgent(configured(), options()), ConfigError);
  gateway = std::make_shared<ServedGateway>(8, 4);
  gateway->protocol = 2;
  EXPECT_THROW(RL4SysAgent(configured(), options()), ConfigError);
  gateway = std::make_shared<ServedGateway>(9, 4);
  EXPECT_THROW(RL4SysAgent(configured(), options()), ConfigError);
}

TEST_F(WithAgent, WithoutShapesAGatewayThatComesBackInTimeIsFound) {
  gateway->away = true;
  std::thread restarted([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    gateway->away = false;
  });
  RL4SysAgent agent(parse_configuration(R"({"client_id": "test"})"), options());
  restarted.join();
  TrajectoryPtr trajectory;
  EXPECT_NO_THROW(step(agent, trajectory));
}

TEST_F(WithAgent, WhatTheRunKeepsOtherwiseIsSaid) {
  gateway->note = "traj_per_epoch stays 8";
  RL4SysAgent agent(configured(), options());
  EXPECT_EQ(agent.figures().troubles["otherwise"], 1u);
}

TEST_F(WithAgent, AGatewayThatIsMakingThePolicyIsNotCalledUnreachable) {
  gateway->making = true;
  RL4SysAgent agent(configured(), options());
  EXPECT_EQ(agent.figures().troubles["not_ready"], 1u);
  EXPECT_EQ(agent.figures().troubles.count("unreachable"), 0u);
}

TEST_F(WithAgent, ARewardAfterTheEndMayReplaceOneThatCameBefore) {
  auto patient = configured();
  patient.flush_seconds = 60.0;
  RL4SysAgent agent(patient, options());
  TrajectoryPtr trajectory;
  Action action = step(agent, trajectory);
  agent.mark_end_of_trajectory(trajectory, action);
  EXPECT_EQ(agent.figures().waiting_trajectories, 1u);
  action.update_reward(*action.reward() + 10.0);
  agent.request_for_action(trajectory, observation);
  EXPECT_THROW(action.update_reward(1.0), UsageError);
  const auto sent = gateway->stored(1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].rewards(), std::string("\0\0\x30\x41", 4)) << "eleven";
}

TEST_F(WithAgent, AnEndedTrajectoryDoesNotWaitForALaterRewardForEver) {
  RL4SysAgent agent(configured(), options());
  TrajectoryPtr trajectory;
  Action action = step(agent, trajectory);
  agent.mark_end_of_trajectory(trajectory, action);
  EXPECT_EQ(gateway->stored(1).size(), 1u) << "though nothing more is asked for";
  EXPECT_THROW(action.update_reward(2.0), UsageError);
}

TEST_F(WithAgent, AnEndedTrajectoryIsNotLostByClosing) {
  auto patient = configured();
  patient.flush_seconds = 60.0;
  RL4SysAgent agent(patient, options());
  TrajectoryPtr trajectory;
  agent.mark_end_of_trajectory(trajectory, step(agent, trajectory));
  agent.close();
  EXPECT_EQ(gateway->stored(1).size(), 1u);
}

TEST_F(WithAgent, WithoutShapesTheGatewayMustAnswer) {
  const auto bare = parse_configuration(R"({"client_id": "test"})");
  EXPECT_NO_THROW(RL4SysAgent(bare, options()));
  gateway = std::make_shared<ServedGateway>(8, 4);
  gateway->away = true;
  Options impatient = options();
  impatient.shapes_seconds = 0.5;
  EXPECT_THROW(RL4SysAgent(bare, impatient), Unavailable);
}

TEST(Action, OneThatNobodyAskedForSaysSo) {
  Action none;
  const float number = 0.5f;
  EXPECT_THROW(none.update_reward(1.0), UsageError);
  EXPECT_THROW(none.reward(), UsageError);
  EXPECT_THROW(none.values(), UsageError);
  EXPECT_THROW(none.foreign(), UsageError);
  EXPECT_THROW(none.did(1), UsageError);
  EXPECT_THROW(none.did(View<float>(&number, 1)), UsageError);
}

}  // namespace
}  // namespace penstock
