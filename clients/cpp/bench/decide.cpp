// How long one decision takes: request_for_action of the default 64×64 policy over 8 numbers with 4 choices,
// with new versions coming in beside it.
//
//   penstock_bench [decisions]        prints one line of JSON; nanoseconds
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "../tests/served.hpp"
#include "penstock/agent.hpp"

int main(int count, char** words) {
  using Clock = std::chrono::steady_clock;
  const std::size_t decisions = count > 1 ? std::strtoul(words[1], nullptr, 10) : 1000000;
  const auto gateway = std::make_shared<penstock::ServedGateway>(8, 4);
  const auto folder = std::filesystem::temp_directory_path() / ("penstock-bench-" + std::to_string(::getpid()));
  auto configuration = penstock::parse_configuration(
      R"({"client_id": "bench", "algorithm_name": "PPO", "send_frequency": 10,
          "algorithm_parameters": {"input_size": 8, "act_dim": 4}})");
  configuration.spool_folder = folder.string();
  penstock::Options options;
  options.gateway = gateway;
  penstock::RL4SysAgent agent(configuration, options);
  while (!agent.version()) std::this_thread::sleep_for(std::chrono::milliseconds(1));

  std::vector<std::uint32_t> times;
  times.reserve(decisions);
  std::array<float, 8> observation{};
  penstock::Random random(7);
  penstock::TrajectoryPtr trajectory;
  std::uint64_t step = 0;
  for (std::size_t i = 0; i < decisions; ++i) {
    for (auto& number : observation) number = random.normal();
    const auto started = Clock::now();
    auto [now, action] = agent.request_for_action(trajectory, observation);
    const auto elapsed = Clock::now() - started;
    times.push_back(static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
    trajectory = now;
    agent.add_to_trajectory(trajectory, action);
    action.update_reward(1.0);
    if (i % 200 == 199) agent.mark_end_of_trajectory(trajectory, action);
    if (i % 20000 == 19999) gateway->publish({1, ++step}, penstock::fresh_policy(8, 4, step));
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) { return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))]; };
  const auto figures = agent.figures();
  std::printf("{\"decisions\": %zu, \"p50_ns\": %u, \"p99_ns\": %u, \"p999_ns\": %u, \"max_ns\": %u, \"swaps\": %lu}\n",
              times.size(), at(0.5), at(0.99), at(0.999), times.back(), static_cast<unsigned long>(figures.swaps));
  agent.close(0.5);
  std::filesystem::remove_all(folder);
  return 0;
}
