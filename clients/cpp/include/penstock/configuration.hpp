// A client's configuration file: the same keys, ranges and sentences as the Python client's (docs/client.md), as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Files in PEM form.
struct Tls {
  std::string ca, cert, key;
};

// What the policy sees and does, as far as the configuration says it.
struct Shape {
  std::vector<std::size_t> observation;
  std::size_t actions = 0;  // choices, or numbers where continuous
  bool continuous = false;
  bool masked = false;
  float limit = 1.0f;
};

enum class Mode {
  act,     // decide
  shadow,  // propose; the application tells with Action::did what it really did
  off      // the kill switch: only the heuristic and the safe action
};

struct Configuration {
  std::string policy;
  std::string address = "localhost:50051";
  std::optional<Shape> shape;  // none where only the gateway knows
  std::string trained;         // JSON for the gateway; tokens and folders never are in it
  std::string token;           // never printed
  std::optional<Tls> tls;
  bool insecure = false;  // the token may travel to another machine without tls
  std::size_t max_traj_length = 1000;
  std::size_t send_frequency = 10;  // trajectories per send
  double flush_seconds = 5.0;
  double poll_seconds = 20.0;
  double deadline_seconds = 0.005;  // of one decision
  Mode mode = Mode::act;
  bool remote = false;  // decide at the gateway
  std::string spool_folder;
  std::size_t spool_bytes = std::size_t{64} << 20;
  std::vector<float> safe_action;  // empty: choice 0, or zeros
};

// Throws ConfigError that names the file, the key and the fix.
Configuration load_configuration(const std::string& path);
Configuration parse_configuration(const std::string& json, const std::string& where = "the configuration");

}  // namespace penstock
