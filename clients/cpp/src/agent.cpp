#include "penstock/agent.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "chain.hpp"
#include "courier.hpp"

namespace penstock {
namespace {

constexpr double kAnswerSeconds = 2.0;  // how long a new agent waits to hear that its configuration is refused

bool switched_off_by_environment() {
  const char* value = std::getenv("PENSTOCK_CLIENT_OFF");
  const std::string text = value == nullptr ? "" : value;
  return !text.empty() && text != "0" && text != "false";
}

}  // namespace

struct RL4SysAgent::Parts {
  Parts(Configuration configured, Options options)
      : configuration(std::move(configured)),
        shadow(configuration.mode == Mode::shadow),
        counters(std::make_shared<Counters>(options.debug)),
        gateway(options.gateway ? options.gateway : connect_gateway(configuration)),
        courier(configuration, gateway, *counters, swap, [this](bool off) { turn(by_file, off); }) {
    turn(by_caller, configuration.mode == Mode::off);
    turn(by_environment, switched_off_by_environment());
    courier.start();
    const auto heard = courier.wait_for_answer(configuration.shape ? kAnswerSeconds : options.shapes_seconds);
    layout = courier.layout();
    if (!layout)
      throw Unavailable("the gateway at " + configuration.address +
                        " does not answer, and the configuration does not say what the policy sees and does; give "
                        "input_size and act_dim");
    if (heard == Courier::Heard::nothing)  // a gateway that is away was heard to be: the courier said so
      counters->trouble("not_ready", "the gateway at " + configuration.address +
                                         " has not answered yet; it takes some seconds to make a new policy; acting "
                                         "with fallbacks until then");
    chain.emplace(configuration, layout,
                  Fallback(layout, std::move(options.heuristic), configuration.safe_action, *counters), *gateway, swap,
                  off, *counters);
    if (options.seed) chain->seed(*options.seed);
  }

  const Configuration configuration;
  const bool shadow;
  const std::shared_ptr<Counters> counters;
  const std::shared_ptr<Gateway> gateway;
  std::atomic<unsigned> off{0};
  Swap swap;
  std::shared_ptr<const Layout> layout;
  std::optional<Chain> chain;
  bool closed = false;
  Courier courier;  // last, so that its threads end before what they use

  void turn(Off who, bool to_off) {
    if (to_off)
      off.fetch_or(who);
    else
      off.fetch_and(~static_cast<unsigned>(who));
  }

  TrajectoryPtr begin(const Trajectory* old);
  TrajectoryPtr make_room(const TrajectoryPtr& trajectory, View<float> observation, View<std::uint8_t> mask);
  void end(const TrajectoryPtr& trajectory);
  void hand_over(const Trajectory* old);
};

// --- trajectories ---

TrajectoryPtr RL4SysAgent::Parts::begin(const Trajectory* old) {
  if (closed) throw UsageError("this agent is closed");
  hand_over(old);
  if (const std::size_t late = courier.outbox().ended().drop(old)) {
    counters->drop("no_reward", late);
    throw UsageError(
        "the last step of an ended trajectory has no reward, so it was dropped; call update_reward before the next "
        "request");
  }
  auto rows = courier.outbox().room();
  if (!rows) rows = std::make_unique<Rows>(layout, configuration.max_traj_length);
  return TrajectoryPtr(new Trajectory(std::move(rows), counters));
}

// More rows, or beyond max_traj_length a new trajectory: what is seen now ends the old one.
TrajectoryPtr RL4SysAgent::Parts::make_room(const TrajectoryPtr& trajectory, View<float> observation,
                                            View<std::uint8_t> mask) {
  Rows& rows = *trajectory->rows_;
  if (rows.capacity < rows.limit) {
    rows.grow();
    return trajectory;
  }
  rows.final.assign(observation.begin(), observation.end());
  rows.final_mask.assign(mask.begin(), mask.end());
  end(trajectory);
  return begin(trajectory.get());
}

// It is handed over at the next request: until then its last reward may come, or be said anew.
void RL4SysAgent::Parts::end(const TrajectoryPtr& trajectory) {
  trajectory->ended_ = true;
  if (trajectory->length_ == 0)
    trajectory->rows_.reset();
  else
    courier.outbox().ended().add(trajectory);
}

// `old`, or all that has ended, where the last reward has come.
void RL4SysAgent::Parts::hand_over(const Trajectory* old) {
  for (auto& rows : courier.outbox().ended().take_paid(old)) courier.put(std::move(rows));
}

// --- the face ---

RL4SysAgent::RL4SysAgent(const std::string& conf_path, bool debug)
    : RL4SysAgent(load_configuration(conf_path), Options{debug}) {}

RL4SysAgent::RL4SysAgent(Configuration configuration, Options options)
    : parts_(std::make_unique<Parts>(std::move(configuration), std::move(options))) {}

RL4SysAgent::~RL4SysAgent() { close(); }

Decision RL4SysAgent::request_for_action(const TrajectoryPtr& given, View<float> observation,
                                         View<std::uint8_t> mask) {
  const auto started = Clock::now();
  Parts& parts = *parts_;
  parts.layout->check_observation(observation);
  if (!mask.empty()) parts.layout->check_mask(mask);
  TrajectoryPtr trajectory = given && !given->ended_ ? given : parts.begin(given.get());
  std::size_t row = trajectory->length_;
  if (row > 0 && std::isnan(trajectory->rows_->rewards[row - 1]))
    throw UsageError("step " + std::to_string(row - 1) +
                     " of this trajectory has no reward; call update_reward before the next request");
  if (row == trajectory->rows_->capacity) {
    trajectory = parts.make_room(trajectory, observation, mask);
    row = trajectory->length_;
  }
  Rows& rows = *trajectory->rows_;
  rows.requests[row] = ++trajectory->requests_;  // from here on the row is this request's
  std::memcpy(rows.observation(row), observation.data(), observation.size() * sizeof(float));
  if (parts.layout->masked) {
    std::uint8_t* flags = rows.mask(row);
    for (std::size_t i = 0; i < parts.layout->choices; ++i) flags[i] = mask.empty() || mask[i] != 0 ? 1 : 0;
  }
  rows.rewards[row] = std::numeric_limits<float>::quiet_NaN();
  rows.foreign[row] = 0;
  Decision decision;
  decision.action.choice_ = parts.chain->decide(rows, row, trajectory->acted_);
  decision.action.row_ = row;
  decision.action.request_ = trajectory->requests_;
  decision.action.told_ = !parts.shadow;
  decision.action.trajectory_ = trajectory;
  decision.trajectory = std::move(trajectory);
  const float elapsed = std::chrono::duration<float>(Clock::now() - started).count();
  parts.counters->decided(elapsed);
  if (static_cast<double>(elapsed) > parts.configuration.deadline_seconds)
    parts.chain->was_late();
  else
    parts.chain->was_in_time();
  return decision;
}

void RL4SysAgent::add_to_trajectory(const TrajectoryPtr& trajectory, const Action& action) {
  if (!trajectory || action.trajectory_ != trajectory) throw UsageError("this action belongs to another trajectory");
  if (trajectory->ended_) throw UsageError("this trajectory has ended; request_for_action begins the next one");
  if (action.row_ != trajectory->length_ || !action.owns(*trajectory->rows_))
    throw UsageError("this action was added before, or a newer one was asked for since");
  if (!action.told_) throw UsageError("in shadow mode say what was done first: action.did(…)");
  ++trajectory->length_;
}

void RL4SysAgent::mark_end_of_trajectory(const TrajectoryPtr& trajectory, const Action& action, bool truncated,
                                         View<float> final_observation) {
  if (!trajectory || trajectory->ended_) throw UsageError("this trajectory has ended already");
  if (!final_observation.empty()) parts_->layout->check_observation(final_observation);
  const bool added =
      action.trajectory_ == trajectory && action.row_ < trajectory->length_ && action.owns(*trajectory->rows_);
  if (!added) add_to_trajectory(trajectory, action);
  Rows& rows = *trajectory->rows_;
  rows.terminated = !truncated;
  if (truncated) rows.final.assign(final_observation.begin(), final_observation.end());
  parts_->end(trajectory);
}

void RL4SysAgent::off() { parts_->turn(by_caller, true); }
void RL4SysAgent::on() { parts_->turn(by_caller, false); }
bool RL4SysAgent::is_off() const { return parts_->off.load() != 0; }

std::optional<Version> RL4SysAgent::version() const {
  const auto deciders = parts_->swap.pick_up();
  if (!deciders) return std::nullopt;
  return deciders->newest->version();
}

AgentFigures RL4SysAgent::figures() const {
  const Counters& counters = *parts_->counters;
  const auto [p50, p99] = counters.percentiles();
  const Waiting waiting = parts_->courier.outbox().waiting();
  return {counters.decisions(), counters.late(), counters.sent_count(), counters.swaps(), p50, p99,
          counters.fallbacks(), counters.dropped(), counters.troubles(), waiting.trajectories, waiting.bytes};
}

void RL4SysAgent::close(double seconds) {
  if (parts_->closed) return;
  parts_->hand_over(nullptr);
  parts_->counters->drop("no_reward", parts_->courier.outbox().ended().drop());
  parts_->closed = true;
  parts_->courier.close(seconds);
}

}  // namespace penstock
