// Every key of a client's configuration and the values it may have: src/penstock/client/keys.py in C++.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock {

// Throws ConfigError for an unknown key (with the nearest one) or a value outside its range.
void check_keys(const nlohmann::json& raw, const std::string& where);

// What the gateway is told. Everything else, tokens above all, stays here.
const std::vector<std::string>& trained_keys();

// A hint to append to an error: the closest known word, or all of them where few.
std::string nearest(const std::string& word, std::vector<std::string> known);

}  // namespace penstock
