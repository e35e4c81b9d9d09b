// A policy's network on Eigen: the same numbers as src/penstock/policy/networks.py.
#pragma once

#include <memory>
#include <vector>

#include "description.hpp"
#include "tensors.hpp"

namespace penstock {

// Room to work in, so that a decision allocates nothing. One per thread that decides.
struct Scratch {
  std::vector<float> input, first, second, patches;
};

// Immutable once made; any number of threads may ask it, each with its own Scratch.
class Network {
 public:
  // Throws Damaged where tensors are missing or of another shape than the description says.
  Network(const Description& description, const Tensors& tensors);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) = delete;

  // Make the room large enough; called once per network, not per decision.
  void prepare(Scratch& scratch) const;

  // `columns[i]` is one row of column i as floats (bytes of an image too, unscaled);
  // `result` gets Description::width() numbers.
  void outputs(const float* const* columns, float* result, Scratch& scratch) const;

 private:
  struct Layers;
  std::unique_ptr<const Layers> layers_;
};

}  // namespace penstock
