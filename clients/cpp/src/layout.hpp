// Shapes of one row: what the configuration and the gateway must agree on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "description.hpp"
#include "penstock/configuration.hpp"
#include "penstock/view.hpp"

namespace penstock {

struct Layout {
  std::vector<std::size_t> observation;
  std::size_t size = 0;  // numbers of one observation
  bool discrete = true;
  std::size_t choices = 0;  // choices, or numbers where not discrete
  bool masked = false;

  // Bytes of a row as it is kept; about what travels.
  std::size_t row_bytes() const { return 4 * (size + (discrete ? 1 : choices) + 2) + (masked ? choices : 0) + 1; }

  // Each throws UsageError where the caller's numbers do not fit.
  void check_observation(View<float> observation) const;
  void check_mask(View<std::uint8_t> mask) const;
  void check_action(View<float> action) const;
};

Layout layout_of(const Shape& shape);

// Throws ConfigError where this client cannot write such rows.
Layout layout_of(const Description& description);

// One sentence where configuration and policy differ, else nothing.
std::string disagreement(const Layout& here, const Layout& there);

}  // namespace penstock
