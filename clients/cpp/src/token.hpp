// Where a client finds its token; it never leaves the metadata of a call.
#pragma once

#include <optional>
#include <string>

#include "penstock/configuration.hpp"

namespace penstock {

// `~` at the beginning of a path is the user's home.
std::string expanded(const std::string& path);

// PENSTOCK_HOME, or ~/.penstock.
std::string home_folder();

// Whether HOST:PORT is this machine: localhost or an address in numbers. Other names are anybody's.
bool is_loopback(const std::string& address);

// `token`, else what is in `token_file`, else PENSTOCK_TOKEN, else on loopback PENSTOCK_HOME/token, else none.
std::string find_token(const std::optional<std::string>& token, const std::optional<std::string>& token_file,
                       const std::string& address, const std::string& where);

// Throws ConfigError where the token would travel in plain text to another machine.
void check_secrecy(const Configuration& configuration, const std::string& where);

}  // namespace penstock
