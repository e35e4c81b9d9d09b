// The short form of an agent.
#include "penstock/agent.hpp"

namespace penstock {
namespace {

// As JSON; letters that no name or address has are refused as such later.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) result += letter < ' ' || letter == '"' || letter == '\\' ? '?' : letter;
  return result + "\"";
}

Configuration named(const std::string& address, const std::string& policy) {
  return parse_configuration("{\"client_id\": " + quoted(policy) + ", \"train_server_address\": " + quoted(address) + "}",
                             "Agent");
}

}  // namespace

Agent::Agent(Configuration configuration, Options options) : agent_(std::move(configuration), std::move(options)) {}

Agent::Agent(const std::string& address, const std::string& policy, Options options)
    : agent_(named(address, policy), std::move(options)) {}

const Action& Agent::act(View<float> observation, View<std::uint8_t> mask) {
  auto [trajectory, action] = agent_.request_for_action(trajectory_, observation, mask);
  trajectory_ = std::move(trajectory);
  action_ = std::move(action);
  if (action_->told()) agent_.add_to_trajectory(trajectory_, *action_);
  return *action_;
}

void Agent::did(int choice) {
  const float number = static_cast<float>(choice);
  did(View<float>(&number, 1));
}

void Agent::did(View<float> values) {
  Action& action = newest("did");
  const bool told = action.told();
  action.did(values);
  if (!told) agent_.add_to_trajectory(trajectory_, action);
}

void Agent::reward(double reward) {
  Action& action = newest("reward");
  action.update_reward(static_cast<double>(action.reward().value_or(0.0f)) + reward);
}

void Agent::end(bool truncated, View<float> final_observation) {
  agent_.mark_end_of_trajectory(trajectory_, newest("end"), truncated, final_observation);
}

Action& Agent::newest(const char* verb) {
  if (!action_) throw UsageError(std::string(verb) + " comes after act; nothing was decided yet");
  return *action_;
}

}  // namespace penstock
