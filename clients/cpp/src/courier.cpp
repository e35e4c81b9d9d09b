#include "courier.hpp"

#include <cmath>

#include "penstock/errors.hpp"
#include "token.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kProtocol = 1;
constexpr const char* kSoftware = "penstock-client/" PENSTOCK_RELEASE " c++/17";
constexpr double kOpenSeconds = 60.0;  // a new policy is made by a process of its own first
constexpr double kFetchSeconds = 30.0;  // beyond the long poll, for a large version on a slow link
constexpr double kTick = 0.5;
constexpr double kAdoptSeconds = 10.0;
constexpr double kSendSeconds = 60.0;
constexpr std::size_t kBatchBytes = 3 << 20;

std::chrono::duration<double> seconds_of(double seconds) { return std::chrono::duration<double>(seconds); }

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds_of(seconds));
}

}  // namespace

Courier::Courier(const Configuration& configuration, std::shared_ptr<Gateway> gateway, Counters& counters, Swap& swap,
                 std::function<void(bool)> switched)
    : configuration_(configuration),
      gateway_(std::move(gateway)),
      counters_(counters),
      swap_(swap),
      switched_(std::move(switched)),
      switch_for_all_(std::filesystem::path(home_folder()) / "clients" / "off"),
      switch_for_policy_(switch_for_all_.parent_path() / (configuration.policy + ".off")),
      outbox_(configuration, counters),
      reporter_(counters) {
  if (configuration.shape) layout_ = std::make_shared<const Layout>(layout_of(*configuration.shape));
}

Courier::~Courier() { close(0.0); }

void Courier::start() {
  look_at_switch();  // before the first decision
  watching_ = std::thread([this] { watch(); });
  bringing_ = std::thread([this] { bring(); });
  carrying_ = std::thread([this] { carry(); });
}

bool Courier::wait_for_answer(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, after(seconds), [this] { return answered_; });
  if (!refusal_.empty()) throw ConfigError(refusal_);
  return opened_;
}

std::shared_ptr<const Layout> Courier::layout() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return layout_;
}

void Courier::put(std::unique_ptr<Rows> rows) {
  if (!outbox_.put(std::move(rows))) return;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    wake_ = true;
  }
  changed_.notify_all();
}

void Courier::close(double seconds) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!stopping_) ends_at_ = after(seconds);
    stopping_ = wake_ = true;
  }
  changed_.notify_all();
  gateway_->stop_bringing();
  if (watching_.joinable()) watching_.join();
  if (bringing_.joinable()) bringing_.join();
  if (!carrying_.joinable()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_until(lock, ends_at_, [this] { return carried_; });
  }
  gateway_->stop_sending();
  carrying_.join();
}

bool Courier::opened() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return opened_;
}

void Courier::set_opened(bool opened) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    opened_ = opened;
    wake_ = true;
  }
  changed_.notify_all();
}

bool Courier::rest(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, after(seconds), [this] { return stopping_; });
  return !stopping_;
}

void Courier::refuse(const std::string& sentence) {
  const std::lock_guard<std::mutex> guard(mutex_);
  refusal_ = sentence;
}

void Courier::note_trouble(const Answer& answer) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (stopping_) return;
  }
  counters_.trouble(answer.kind == Answer::refused ? "refused_by_gateway" : "unreachable", answer.text);
}

// --- bringing policies ---

void Courier::bring() {
  Pause pause;
  bool going = true;
  while (going) {
    Answer answer;
    try {
      if (!opened()) answer = open();
      if (answer.kind == Answer::ok) {
        if (!configuration_.remote)
          answer = fetch();
        else
          rest(kTick);
      }
      if (answer.kind != Answer::ok) {
        note_trouble(answer);
        // refused: a person may have mended it at the gateway since
        if (answer.kind != Answer::unavailable) set_opened(false);
      }
    } catch (const NotThisDelta& error) {
      counters_.trouble("delta", std::string(error.what()) + "; the whole version is asked for");
      fetch_whole_ = true;
      answer.kind = Answer::unavailable;
    } catch (const std::exception& error) {
      counters_.trouble("damaged", error.what());
      answer.kind = Answer::unavailable;
    }
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      answered_ = true;
    }
    changed_.notify_all();
    if (answer.kind == Answer::ok) pause.after_success();
    going = rest(answer.kind == Answer::ok ? 0.0 : pause.after_failure());
  }
}

Answer Courier::open() {
  v1::OpenRequest request;
  request.set_protocol(kProtocol);
  request.set_policy(configuration_.policy);
  request.set_configuration(configuration_.trained);
  request.set_software(kSoftware);
  v1::OpenReply reply;
  Answer answer = gateway_->open(request, reply, kOpenSeconds);
  if (answer.kind == Answer::ok) {
    std::string sentence;
    if (reply.protocol() != kProtocol)
      sentence = "the gateway at " + configuration_.address + " speaks protocol " + std::to_string(reply.protocol()) +
                 ", this client " + std::to_string(kProtocol) + "; bring both to the same release";
    else
      try {
        const Layout there = layout_of(description_of(reply.description()));
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!layout_) layout_ = std::make_shared<const Layout>(there);
        sentence = disagreement(*layout_, there);
        if (!sentence.empty()) sentence += "; correct the configuration or choose another client_id";
      } catch (const ConfigError& error) {
        sentence = error.what();
      }
    if (!sentence.empty()) answer = {Answer::refused, sentence};
  }
  if (answer.kind == Answer::refused) refuse(answer.text);
  if (answer.kind != Answer::ok) return answer;
  refuse("");
  if (reply.max_message_bytes() != 0)
    outbox_.set_max_bytes(std::min<std::size_t>(kBatchBytes, std::size_t{reply.max_message_bytes()} * 3 / 4));
  if (reply.run() != run_) run_ = reply.run(), held_.reset();  // another run counts its versions anew
  counters_.note("the run " + run_ + " learns the policy " + configuration_.policy);
  set_opened(true);
  return answer;
}

Answer Courier::fetch() {
  v1::FetchRequest request;
  request.set_policy(configuration_.policy);
  request.set_wait_seconds(fetch_whole_ ? 0.0 : configuration_.poll_seconds);
  *request.mutable_figures() = reporter_.report(outbox_.waiting());
  if (held_ && !fetch_whole_) {
    request.mutable_have()->set_epoch(held_->version.epoch);
    request.mutable_have()->set_step(held_->version.step);
    request.set_have_sha256(held_->sha256);
  }
  const auto asked = Clock::now();
  Arrival arrival;
  std::string damage;  // no exception may pass through the RPC library
  const Answer answer = gateway_->fetch(
      request,
      [&](v1::FetchReply& reply) {
        try {
          return arrival.take(reply);
        } catch (const Damaged& error) {
          damage = error.what();
          return false;
        }
      },
      configuration_.poll_seconds + kFetchSeconds);
  if (answer.kind != Answer::ok) return answer;
  if (!damage.empty()) throw Damaged(damage);
  auto arrived = arrival.finish(held_);
  fetch_whole_ = false;
  // within a run versions never go back, so ask which run this is; `open` lets go of what is held where it is another
  const std::string run = run_;
  if (arrival.older_than(held_)) {
    const Answer reopened = open();
    if (reopened.kind != Answer::ok || run_ != run) return reopened;
  }
  if (arrived)
    use(std::move(*arrived));
  else if (Clock::now() - asked < std::chrono::milliseconds(50))
    rest(0.2);  // a gateway that does not wait must not be asked without end
  return answer;
}

// Make it ready here, then let the application have it by one pointer.
void Courier::use(Held arrived) {
  const auto here = layout();
  const std::string sentence = here ? disagreement(*here, layout_of(arrived.description)) : "it came before its policy was opened";
  if (!sentence.empty())
    throw Damaged("version " + arrived.version.text() + " is of another shape and is not used: " + sentence);
  auto decider =
      std::make_shared<const Decider>(arrived.description, arrived.tensors, arrived.version, arrived.epsilon);
  const double taken = decider->trial();
  held_ = std::move(arrived);
  if (taken > configuration_.deadline_seconds) {
    counters_.trouble("slow_version", "version " + held_->version.text() + " needs " + std::to_string(taken * 1e3) +
                                          " ms a decision, more than deadline_ms allows; the version before it stays");
    return;
  }
  swap_.lay(std::move(decider));
  counters_.swapped();
  counters_.note("version " + held_->version.text() + " decides");
}

// --- carrying experience ---

void Courier::carry() {
  Pause pause;
  Clock::time_point not_before{}, adopted_at{};
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_until(lock, after(kTick), [this] { return wake_; });
      if (stopping_) break;
      wake_ = false;
    }
    counters_.say();
    try {
      if (Clock::now() - adopted_at > seconds_of(kAdoptSeconds)) {
        outbox_.adopt();
        adopted_at = Clock::now();
      }
      if (!outbox_.due()) continue;
      outbox_.pack_all();
      if (!opened() || Clock::now() < not_before)
        outbox_.store();
      else
        not_before = after(send(pause));
    } catch (const std::exception& error) {
      counters_.trouble("courier", std::string("sending failed: ") + error.what());
      rest(pause.after_failure());
    }
  }
  try {
    finish();
  } catch (const std::exception& error) {
    counters_.trouble("courier", std::string("the last sending failed: ") + error.what());
  }
  counters_.say();
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    carried_ = true;
  }
  changed_.notify_all();
}

// Deliver; return the seconds to wait before trying again.
double Courier::send(Pause& pause) {
  double wait = 0.0;
  const Answer answer = outbox_.send(*gateway_, reporter_, after(kSendSeconds), wait);
  if (answer.kind == Answer::ok) {
    pause.after_success();
  } else {
    note_trouble(answer);
    if (answer.kind != Answer::unavailable) set_opened(false);
    wait = pause.after_failure();
  }
  if (wait > 0.0) outbox_.store();
  return wait;
}

// The last flush: to the gateway while time allows, else to the spool.
void Courier::finish() {
  outbox_.pack_all();
  Clock::time_point until;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    until = ends_at_;
  }
  while (opened() && outbox_.waiting().trajectories != 0 && Clock::now() < until) {
    double wait = 0.0;
    if (outbox_.send(*gateway_, reporter_, until, wait).kind != Answer::ok || after(wait) >= until) break;
    std::this_thread::sleep_for(seconds_of(wait));
  }
  outbox_.store();
  outbox_.close();
}

void Courier::watch() {
  while (rest(kTick)) look_at_switch();
}

// An operator's kill switch: a file, for all clients of this machine's user or for one policy.
void Courier::look_at_switch() {
  std::error_code ignored;
  switched_(std::filesystem::exists(switch_for_all_, ignored) || std::filesystem::exists(switch_for_policy_, ignored));
}

}  // namespace penstock
