// A control loop in C++ that asks a policy what to do, while the policy is trained elsewhere.
//
//   cpp_control CONFIGURATION [EPISODES] [TARGET]
//
// Prints one line of JSON every 20 episodes, and one at the end. Ends with the episodes, or once the mean return of
// the last 20 reaches the target. Exit code 2: the configuration is wrong, and stderr says where.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>

#include "cart_pole.hpp"
#include "penstock/agent.hpp"

namespace {

constexpr std::size_t kWindow = 20;
constexpr int kStepsAhead = 2048;  // one update's worth

// While there is no policy: push to where the pole leans.
std::vector<float> lean(penstock::View<float> state, penstock::View<std::uint8_t>) {
  return {state[2] > 0.0f ? 1.0f : 0.0f};
}

// A plant has its own pace; this simulation is a thousand times faster than one. So that experience is not old before
// it is learned from, it waits for a newer version once it is an update ahead.
class Patience {
 public:
  void pass(const penstock::RL4SysAgent& agent, int steps) {
    if (agent.version() != seen_) seen_ = agent.version(), ahead_ = 0;
    ahead_ += steps;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ahead_ >= kStepsAhead && agent.version() == seen_ && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

 private:
  std::optional<penstock::Version> seen_;
  int ahead_ = 0;
};

void print(const penstock::RL4SysAgent& agent, int episodes, double mean) {
  const auto figures = agent.figures();
  std::uint64_t fallbacks = 0;
  for (const auto& [reason, count] : figures.fallbacks) fallbacks += count;
  const auto version = agent.version();
  std::printf("{\"episodes\": %d, \"mean_return\": %.1f, \"version\": \"%s\", \"decisions\": %lu, \"fallbacks\": %lu, "
              "\"sent\": %lu, \"p50_us\": %.2f}\n",
              episodes, mean, version ? version->text().c_str() : "", static_cast<unsigned long>(figures.decisions),
              static_cast<unsigned long>(fallbacks), static_cast<unsigned long>(figures.sent), figures.decision_p50_us);
  std::fflush(stdout);
}

void control(penstock::RL4SysAgent& agent, int episodes, double target) {
  CartPole plant(1);
  Patience patience;
  std::deque<double> returns;
  penstock::TrajectoryPtr trajectory;
  double mean = 0;
  int episode = 0;
  while (episode < episodes && (returns.size() < kWindow || mean < target)) {
    auto state = plant.reset();
    int steps = 0;
    for (bool over = false; !over; ++steps) {
      auto [now, action] = agent.request_for_action(trajectory, state);
      trajectory = now;
      agent.add_to_trajectory(trajectory, action);
      state = plant.push(action.act());
      action.update_reward(1.0);
      over = plant.fallen() || plant.time_is_up();
      if (over) agent.mark_end_of_trajectory(trajectory, action, !plant.fallen(), state);
    }
    returns.push_back(steps);
    if (returns.size() > kWindow) returns.pop_front();
    mean = std::accumulate(returns.begin(), returns.end(), 0.0) / static_cast<double>(returns.size());
    if (++episode % static_cast<int>(kWindow) == 0) print(agent, episode, mean);
    patience.pass(agent, steps);
  }
  agent.close();
  print(agent, episode, mean);
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: cpp_control CONFIGURATION [EPISODES] [TARGET]\n");
    return 2;
  }
  try {
    penstock::Options options;
    options.heuristic = lean;
    penstock::RL4SysAgent agent(penstock::load_configuration(words[1]), options);
    control(agent, count > 2 ? std::atoi(words[2]) : 1000, count > 3 ? std::atof(words[3]) : 475.0);
  } catch (const penstock::Error& error) {
    std::fprintf(stderr, "cpp_control: %s\n", error.what());
    return 2;
  }
  return 0;
}
