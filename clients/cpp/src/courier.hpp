// Threads beside the application: one brings policies, one takes experience away, one looks for the kill switch. The
// application waits for none of them.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "decider.hpp"
#include "fetching.hpp"
#include "figures.hpp"
#include "gateway.hpp"
#include "layout.hpp"
#include "outbox.hpp"

namespace penstock {

// Longer after every failure, by chance between half and whole, so that many clients do not come at once.
class Pause {
 public:
  void after_success() { next_ = kFirst; }
  double after_failure() {
    const double seconds = next_ * (0.5 + 0.5 * static_cast<double>(random_.uniform()));
    next_ = std::min(2 * next_, kLongest);
    return seconds;
  }

 private:
  static constexpr double kFirst = 0.2, kLongest = 10.0;
  double next_ = kFirst;
  Random random_;
};

class Courier {
 public:
  // `switched(off)` hears of the operator's kill switch, a file.
  Courier(const Configuration& configuration, std::shared_ptr<Gateway> gateway, Counters& counters, Swap& swap,
          std::function<void(bool)> switched);
  ~Courier();

  void start();
  enum class Heard { nothing, trouble, policy };
  // What came of asking for the policy so far; throws ConfigError where the gateway refused. While only the gateway
  // knows the shapes, one that is away is asked again until then.
  Heard wait_for_answer(double seconds);
  // What the policy sees and does: the configuration's word, else the gateway's, else none yet.
  std::shared_ptr<const Layout> layout() const;
  void put(std::unique_ptr<Rows> rows);
  Outbox& outbox() { return outbox_; }
  // Send what waits, put the rest into the spool, end the threads; returns within about `seconds`.
  void close(double seconds);

 private:
  // bringing.cpp
  void bring();
  Answer open();
  Answer fetch();
  void use(Held arrived);
  // carrying.cpp
  void carry();
  double send(Pause& pause);
  void finish();
  // Apart from the others, because each of them may wait for the gateway.
  void watch();
  void look_at_switch();
  void refuse(const std::string& sentence);
  bool opened() const;
  void set_opened(bool opened);
  // Sleep, but not past the end; false once this client is closing.
  bool rest(double seconds);
  void note_trouble(const Answer& answer);

  const Configuration& configuration_;
  const std::shared_ptr<Gateway> gateway_;
  Counters& counters_;
  Swap& swap_;
  const std::function<void(bool)> switched_;
  const std::filesystem::path switch_for_all_, switch_for_policy_;
  Outbox outbox_;
  Reporter reporter_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Layout> layout_;
  bool opened_ = false, answered_ = false, stopping_ = false, wake_ = false, carried_ = false;
  std::string refusal_;
  Clock::time_point ends_at_{};

  // the bringing thread's own
  std::optional<Held> held_;
  std::string run_;
  bool fetch_whole_ = false;

  std::thread bringing_, carrying_, watching_;
};

}  // namespace penstock
