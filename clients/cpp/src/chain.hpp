// Who decides: the newest policy, else the one before it, else the user's heuristic, else the safe action.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "decider.hpp"
#include "fallback.hpp"
#include "figures.hpp"
#include "gateway.hpp"
#include "rows.hpp"

namespace penstock {

// Who may turn the policy off; each for itself.
enum Off : unsigned { by_caller = 1, by_environment = 2, by_file = 4 };

// Belongs to the application's thread, but for `off`, which any thread may turn.
class Chain {
 public:
  Chain(const Configuration& configuration, std::shared_ptr<const Layout> layout, Fallback fallback, Gateway& gateway,
        const Swap& swap, const std::atomic<unsigned>& off, Counters& counters)
      : configuration_(configuration),
        layout_(std::move(layout)),
        fallback_(std::move(fallback)),
        gateway_(gateway),
        swap_(swap),
        off_(off),
        counters_(counters) {}

  // Choose for the observation in `row`, write the choice there and return it; a Box's numbers go to `acted`.
  int decide(Rows& rows, std::size_t row, std::vector<float>& acted);
  void seed(std::uint64_t number) { desk_.random = Random(number); }
  void was_late();
  void was_in_time() { late_in_a_row_ = 0; }

 private:
  static constexpr std::chrono::milliseconds kFirstRest{50}, kLongestRest{2000};

  bool by(const Decider& decider, Rows& rows, std::size_t row);
  // After a failure it rests, so that a dead gateway costs one deadline, not many.
  bool by_gateway(Rows& rows, std::size_t row);
  bool ask_gateway(Rows& rows, std::size_t row);
  bool by_previous(Rows& rows, std::size_t row);
  int by_fallback(Rows& rows, std::size_t row, std::vector<float>& acted);
  int done(const Rows& rows, std::size_t row, std::vector<float>& acted) const;

  const Configuration& configuration_;
  const std::shared_ptr<const Layout> layout_;
  Fallback fallback_;
  Gateway& gateway_;
  const Swap& swap_;
  const std::atomic<unsigned>& off_;
  Counters& counters_;
  Desk desk_;
  std::shared_ptr<const Deciders> deciders_;
  std::uint64_t picked_up_ = 0;
  int late_in_a_row_ = 0;
  Clock::time_point resting_until_{}, gateway_rests_until_{};
  std::chrono::milliseconds gateway_rest_ = kFirstRest;
};

}  // namespace penstock
