// Which keys a client's configuration has: the table of src/penstock/client/keys.py, made into C++ by clients/cpp/keys.py.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace penstock {

enum class Kind { text, whole, number, flag, shape, group, any };

// The values one key may have; both ends of a range belong to it.
struct Key {
  Kind kind;
  double low, high;
  std::vector<std::string> choices;
  bool null;
  bool above;  // whether `low` itself is not allowed
};

using Table = std::map<std::string, Key>;

const Table& top_keys();
const std::map<std::string, Table>& group_keys();
// Of `algorithm_parameters`, for the algorithms that are known here.
const Table& parameter_keys();
// What the gateway is told. Everything else, tokens above all, stays here.
const std::vector<std::string>& trained_keys();
// Parameters that the client itself reads, whatever the algorithm.
const std::vector<std::string>& shape_parameters();
// Those whose parameters are known here; a stranger's plugin names its own and the gateway checks them.
const std::vector<std::string>& known_algorithms();

}  // namespace penstock
