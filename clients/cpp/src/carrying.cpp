// The thread that carries experience away: to the gateway, or to the spool while that is away or full.
#include "clock.hpp"
#include "courier.hpp"
#include "penstock/errors.hpp"

namespace penstock {
namespace {

constexpr double kAdoptSeconds = 10.0;
constexpr double kSendSeconds = 60.0;

}  // namespace

void Courier::carry() {
  Pause pause;
  Clock::time_point not_before{}, adopted_at{};
  outbox_.check();
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_until(lock, after(kTickSeconds), [this] { return wake_; });
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
  try {
    const Answer answer = outbox_.send(*gateway_, reporter_, after(kSendSeconds), wait);
    if (answer.kind == Answer::ok) {
      pause.after_success();
    } else {
      note_trouble(answer);
      if (answer.kind != Answer::unavailable) set_opened(false);
      wait = pause.after_failure();
    }
  } catch (const DiskError& error) {  // the spool's
    counters_.trouble("disk", error.what());
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
  try {
    while (opened() && outbox_.waiting().trajectories != 0 && Clock::now() < until) {
      double wait = 0.0;
      if (outbox_.send(*gateway_, reporter_, until, wait).kind != Answer::ok || after(wait) >= until) break;
      std::this_thread::sleep_for(seconds_of(wait));
    }
  } catch (const std::exception& error) {  // whatever it is, the rest must reach the disk
    counters_.trouble("disk", std::string("what waits stays in the spool: ") + error.what());
  }
  outbox_.store(true);
  outbox_.close();
}

}  // namespace penstock
