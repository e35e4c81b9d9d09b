// The life of the threads: begun, waited for, woken and ended. What they do is in bringing.cpp and carrying.cpp.
#include "courier.hpp"

#include "clock.hpp"
#include "penstock/errors.hpp"
#include "token.hpp"

namespace penstock {

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

Courier::Heard Courier::wait_for_answer(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, after(seconds), [this] { return answered_; });
  if (!refusal_.empty()) throw ConfigError(refusal_);
  if (opened_) return Heard::policy;
  return answered_ ? Heard::trouble : Heard::nothing;
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

void Courier::watch() {
  while (rest(kTickSeconds)) look_at_switch();
}

// An operator's kill switch: a file, for all clients of this machine's user or for one policy.
void Courier::look_at_switch() {
  std::error_code ignored;
  switched_(std::filesystem::exists(switch_for_all_, ignored) || std::filesystem::exists(switch_for_policy_, ignored));
}

}  // namespace penstock
