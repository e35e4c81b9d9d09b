// A client's configuration against the table of its keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock {

// Throws ConfigError for an unknown key (with the nearest one) or a value outside its range.
void check_keys(const nlohmann::json& raw, const std::string& where);

std::string lower_case(std::string text);

// A hint to append to an error: the closest known word, or all of them where few.
std::string nearest(const std::string& word, std::vector<std::string> known);

}  // namespace penstock
