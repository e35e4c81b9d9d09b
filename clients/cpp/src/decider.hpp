// One version of a policy, ready to decide. Immutable, so that a swap is one pointer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "description.hpp"
#include "heads.hpp"
#include "network.hpp"
#include "penstock/version.hpp"

namespace penstock {

// Room and noise of one deciding thread.
struct Desk {
  Random random;
  Scratch scratch;
  std::vector<float> outputs, weights;
};

class Decider {
 public:
  // Throws Damaged where tensors and description do not fit together.
  Decider(const Description& description, const Tensors& tensors, Version version, double epsilon);

  const Version& version() const { return version_; }
  const Description& description() const { return description_; }
  // Make the desk large enough for this version.
  void prepare(Desk& desk) const;
  // Choose for one observation; false where the network gave numbers that are not finite. Allocates nothing.
  bool decide(const float* observation, const std::uint8_t* mask, Desk& desk, Chosen action, float& log_prob) const;
  // Seconds of the fastest of a few decisions on an empty observation: the first ones are slower.
  double trial() const;

 private:
  Description description_;
  Network network_;
  Version version_;
  double epsilon_;
};

// The newest version and the one before it.
struct Deciders {
  std::shared_ptr<const Decider> newest, before;
};

// Where the courier lays a version and the application picks it up. The application's look costs one load.
class Swap {
 public:
  void lay(std::shared_ptr<const Decider> decider) {
    auto next = std::make_shared<Deciders>();
    const auto now = std::atomic_load(&held_);
    next->newest = std::move(decider);
    if (now) next->before = now->newest;
    std::atomic_store(&held_, std::shared_ptr<const Deciders>(std::move(next)));
    generation_.fetch_add(1, std::memory_order_release);
  }
  // Changes whenever something new lies here.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const Deciders> pick_up() const { return std::atomic_load(&held_); }

 private:
  std::shared_ptr<const Deciders> held_;
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace penstock
