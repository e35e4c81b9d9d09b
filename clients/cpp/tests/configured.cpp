// What the C++ client makes of configurations: one JSON text a line on stdin, one answer a line on stdout.
// tests/integration/test_cpp_configuration.py compares the answers with the Python client's.
#include <iostream>
#include <nlohmann/json.hpp>

#include "penstock/configuration.hpp"
#include "penstock/errors.hpp"

namespace {

using nlohmann::json;

json told(const penstock::Configuration& found) {
  json shape;
  if (found.shape)
    shape = {{"observation", found.shape->observation}, {"actions", found.shape->actions},
             {"continuous", found.shape->continuous},   {"masked", found.shape->masked},
             {"limit", found.shape->limit}};
  const char* const modes[] = {"act", "shadow", "off"};
  return {{"policy", found.policy},
          {"address", found.address},
          {"shape", shape},
          {"trained", json::parse(found.trained)},
          {"token", found.token},
          {"tls", found.tls.has_value()},
          {"max_traj_length", found.max_traj_length},
          {"send_frequency", found.send_frequency},
          {"flush_seconds", found.flush_seconds},
          {"poll_seconds", found.poll_seconds},
          {"deadline", found.deadline_seconds},
          {"mode", modes[static_cast<int>(found.mode)]},
          {"inference", found.remote ? "remote" : "local"},
          {"spool_folder", found.spool_folder},
          {"spool_bytes", found.spool_bytes},
          {"safe_action", found.safe_action}};
}

json answer_to(const std::string& text) {
  try {
    return {{"accepted", told(penstock::parse_configuration(text, "conf.json"))}};
  } catch (const penstock::ConfigError& error) {
    return {{"refused", error.what()}};
  } catch (const std::exception& error) {
    return {{"broke", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string text; std::getline(std::cin, text);)
    std::cout << answer_to(text).dump(-1, ' ', true, json::error_handler_t::replace) << '\n';
}
