// The library an application links: ask for actions, say what came of them; training happens elsewhere.
//
//   penstock::RL4SysAgent agent("configuration.json");
//   penstock::TrajectoryPtr trajectory;
//   while (running) {
//     auto [now, action] = agent.request_for_action(trajectory, observation);
//     trajectory = now;
//     agent.add_to_trajectory(trajectory, action);
//     action.update_reward(do_it(action.act()));
//     if (done) agent.mark_end_of_trajectory(trajectory, action);
//   }
//
// Use one agent in one thread at a time; several trajectories may be open in it at once. Only mistakes of the caller
// throw (UsageError, ConfigError); the network never does. Make agents after fork, not before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/configuration.hpp"
#include "penstock/errors.hpp"
#include "penstock/version.hpp"
#include "penstock/view.hpp"

namespace penstock {

struct Rows;
class Counters;
class Gateway;

// Rows of one episode, or of a piece of one. Made by request_for_action.
class Trajectory {
 public:
  ~Trajectory();
  Trajectory(const Trajectory&) = delete;
  Trajectory& operator=(const Trajectory&) = delete;

  bool is_completed() const { return ended_; }
  std::size_t length() const { return length_; }

 private:
  friend class Action;
  friend class Ended;
  friend class RL4SysAgent;
  Trajectory(std::unique_ptr<Rows> rows, std::shared_ptr<Counters> counters);

  std::unique_ptr<Rows> rows_;  // none once handed over
  std::mutex saying_;           // held while something is said about it after its end, when the sender may take it
  std::shared_ptr<Counters> counters_;
  std::vector<float> acted_;
  std::size_t length_ = 0;
  std::uint64_t requests_ = 0;
  bool ended_ = false;
};

using TrajectoryPtr = std::shared_ptr<Trajectory>;

// One decision. Where it was not added before the next request its step is forgotten, and saying more of it throws.
class Action {
 public:
  // What to do: the choice, counted from 0. For Boxes use values().
  int act() const { return choice_; }
  // What to do: the numbers of a Box, within its bounds. They lie in the trajectory until its next request.
  View<float> values() const;
  // Say what came of it; the last call counts. May be called until the next request, also after the end; there for
  // flush_seconds where a reward had come before.
  void update_reward(double reward);
  std::optional<float> reward() const;
  // Say what was really done, where that is not what was asked for: a person's or another system's decision.
  void did(int choice);
  void did(View<float> values);
  // Whether a fallback or a person decided, not the policy.
  bool foreign() const;
  // False in shadow mode until did() says what was really done.
  bool told() const { return told_; }

 private:
  friend class RL4SysAgent;
  // Throws UsageError where it has none: an Action that nobody was given by request_for_action.
  Trajectory& trajectory() const;
  // Keeps the sender away from a trajectory that has ended.
  std::unique_lock<std::mutex> hold() const;
  // Whether its row in the trajectory is still its own.
  bool owns(const Rows& rows) const;
  // The rows, to write to its own; throws UsageError where that is too late.
  Rows& rows(const char* what) const;
  // The rows, or none once they were handed over; throws UsageError where its row is another's.
  const Rows* readable() const;

  TrajectoryPtr trajectory_;
  std::size_t row_ = 0;
  std::uint64_t request_ = 0;
  int choice_ = 0;
  bool told_ = true;
};

struct Decision {
  TrajectoryPtr trajectory;
  Action action;
};

// A user's own rule, asked where no policy can decide: observation and mask (empty without masks) → the numbers of
// the action, or its choice as one number. Whatever it throws is counted, and the safe action is taken.
using Heuristic = std::function<std::vector<float>(View<float>, View<std::uint8_t>)>;

struct Options {
  bool debug = false;
  Heuristic heuristic = nullptr;
  std::optional<std::uint64_t> seed = std::nullopt;  // makes the noise of decisions repeatable
  // Another way to the gateway than gRPC, for tests.
  std::shared_ptr<Gateway> gateway = nullptr;
  // How long to wait for a gateway that does not answer, where only it knows what the policy sees and does.
  double shapes_seconds = 30.0;
};

// How a client is doing; counters since it was made.
struct AgentFigures {
  std::uint64_t decisions = 0, late = 0, sent = 0, swaps = 0;
  double decision_p50_us = 0, decision_p99_us = 0;
  std::map<std::string, std::uint64_t> fallbacks, dropped, troubles;
  std::size_t waiting_trajectories = 0, waiting_bytes = 0;
};

class RL4SysAgent {
 public:
  // Waits up to two seconds to hear whether the gateway refuses the configuration; throws ConfigError where it does.
  // A gateway that is away is no error where the configuration says what the policy sees and does; else Unavailable is
  // thrown after Options::shapes_seconds.
  explicit RL4SysAgent(const std::string& conf_path, bool debug = false);
  explicit RL4SysAgent(Configuration configuration, Options options = {});
  ~RL4SysAgent();
  RL4SysAgent(const RL4SysAgent&) = delete;
  RL4SysAgent& operator=(const RL4SysAgent&) = delete;

  // Decide. `trajectory` is empty, or one that ended, at the beginning of an episode. Beyond max_traj_length another
  // trajectory comes back than went in.
  Decision request_for_action(const TrajectoryPtr& trajectory, View<float> observation, View<std::uint8_t> mask = {});
  // Keep this step; one that is not added is forgotten at the next request.
  void add_to_trajectory(const TrajectoryPtr& trajectory, const Action& action);
  // The episode is over; `action` is its last, and is added where it was not. `truncated`: it was cut off, and
  // `final_observation` is what would have come next; without it the last step serves as that and is not learned from
  // itself.
  void mark_end_of_trajectory(const TrajectoryPtr& trajectory, const Action& action, bool truncated = false,
                              View<float> final_observation = {});

  // The kill switch: from the next decision on the policy has no say. Any thread may call it.
  void off();
  // Give the policy its say again, unless a file or the environment keeps it off.
  void on();
  bool is_off() const;

  // Of the newest policy that decides here; none before the first arrived.
  std::optional<Version> version() const;
  AgentFigures figures() const;
  // Send what has ended, or leave it in the spool; returns within about `seconds`. The destructor does it too.
  void close(double seconds = 5.0);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The short form: act, reward, end; one episode after the other.
class Agent {
 public:
  explicit Agent(Configuration configuration, Options options = {});
  // For a policy that exists at the gateway, which must answer.
  Agent(const std::string& address, const std::string& policy, Options options = {});

  // What to do now.
  const Action& act(View<float> observation, View<std::uint8_t> mask = {});
  // Say what was really done; a must in shadow mode.
  void did(int choice);
  void did(View<float> values);
  // What came of the last action; several rewards for one action add up.
  void reward(double reward);
  void end(bool truncated = false, View<float> final_observation = {});
  void close(double seconds = 5.0) { agent_.close(seconds); }
  RL4SysAgent& agent() { return agent_; }

 private:
  Action& newest(const char* verb);

  RL4SysAgent agent_;
  TrajectoryPtr trajectory_;
  std::optional<Action> action_;
};

}  // namespace penstock
