// Where a client finds its token; it never leaves the metadata of a call.
#pragma once

#include <optional>
#include <string>

namespace penstock {

// `~` at the beginning of a path is the user's home.
std::string expanded(const std::string& path);

// PENSTOCK_HOME, or ~/.penstock.
std::string home_folder();

bool is_loopback(const std::string& address);

// `token`, else what is in `token_file`, else PENSTOCK_TOKEN, else on loopback PENSTOCK_HOME/token, else none.
std::string find_token(const std::optional<std::string>& token, const std::optional<std::string>& token_file,
                       const std::string& address, const std::string& where);

}  // namespace penstock
