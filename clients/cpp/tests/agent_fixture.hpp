// An agent of 8 numbers and 4 choices on a gateway inside the test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "penstock/agent.hpp"
#include "scratch.hpp"
#include "served.hpp"

namespace penstock {

inline bool within(double seconds, const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class WithAgent : public testing::Test {
 protected:
  void SetUp() override { ::setenv("PENSTOCK_HOME", home.path.c_str(), 1); }
  void TearDown() override { ::unsetenv("PENSTOCK_HOME"); }

  Configuration configured(const std::string& more = "") const {
    auto configuration = parse_configuration(
        R"({"client_id": "test", "algorithm_name": "PPO", "send_frequency": 1, "flush_seconds": 0.05,
            "poll_seconds": 0.2, "algorithm_parameters": {"input_size": 8, "act_dim": 4})" + more + "}");
    configuration.deadline_seconds = 5.0;  // a busy machine must not make a test's policy rest
    return configuration;
  }

  Options options(Heuristic heuristic = nullptr) const { return {false, std::move(heuristic), 1, gateway}; }

  // One step: ask, add, reward.
  Action step(RL4SysAgent& agent, TrajectoryPtr& trajectory, double reward = 1.0) {
    auto [now, action] = agent.request_for_action(trajectory, observation);
    trajectory = now;
    agent.add_to_trajectory(trajectory, action);
    action.update_reward(reward);
    return action;
  }

  ScratchFolder home;
  std::shared_ptr<ServedGateway> gateway = std::make_shared<ServedGateway>(8, 4);
  std::vector<float> observation = std::vector<float>(8, 0.5f);
};

}  // namespace penstock
