// Fetching: a version arrives whole or as a delta, is checked, and becomes tensors.
#pragma once

#include <optional>
#include <string>

#include "description.hpp"
#include "penstock/errors.hpp"
#include "penstock/version.hpp"
#include "penstock_v1.pb.h"
#include "tensors.hpp"

namespace penstock {

// A version as it lies here: never changed, only replaced.
struct Held {
  Version version;
  std::string sha256;
  Tensors tensors;
  Description description;
  double epsilon = 0.0;
};

// A delta that does not apply here; the whole version is asked for next.
struct NotThisDelta : Damaged {
  using Damaged::Damaged;
};

// Gathers the replies of one Fetch. Sizes are checked before memory is taken.
class Arrival {
 public:
  // Whether more is wanted; throws Damaged where a reply does not belong.
  bool take(v1::FetchReply& reply);
  // The version that came, or none where there is nothing newer than `held`; throws Damaged or NotThisDelta.
  std::optional<Held> finish(const std::optional<Held>& held) const;
  // Whether the gateway's newest is older than `held`: then it may be of another run, which counts anew.
  bool older_than(const std::optional<Held>& held) const;

 private:
  Tensors tensors(const std::optional<Held>& held) const;

  std::optional<v1::FetchReply> first_;
  std::string payload_;
};

}  // namespace penstock
