#include "token.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMaxToken = 4096;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxToken + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string clean(std::string token, const std::string& where) {
  const auto blank = [](unsigned char letter) { return std::isspace(letter) != 0; };
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), blank));
  token.erase(std::find_if_not(token.rbegin(), token.rend(), blank).base(), token.end());
  const bool plain = std::all_of(token.begin(), token.end(), [](char letter) { return '!' <= letter && letter <= '~'; });
  if (token.size() > kMaxToken || !plain)
    throw ConfigError(where + " does not hold a token: it is too long or has letters no token has");
  return token;
}

}  // namespace

std::string expanded(const std::string& path) {
  const bool home = path == "~" || path.rfind("~/", 0) == 0;
  return home ? environment("HOME") + path.substr(1) : path;
}

std::string home_folder() {
  const std::string given = environment("PENSTOCK_HOME");
  return expanded(given.empty() ? "~/.penstock" : given);
}

bool is_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  if (host == "localhost") return true;
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six{};
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed && inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&six);
}

std::string find_token(const std::optional<std::string>& token, const std::optional<std::string>& token_file,
                       const std::string& address, const std::string& where) {
  if (token && token_file)
    throw ConfigError(where + ": token and token_file are both given; leave one out");
  if (token) return clean(*token, where + ": token");
  if (token_file) {
    const auto path = expanded(*token_file);
    const auto found = content_of(path);
    if (!found) throw ConfigError(where + ": token_file names " + path + ", which cannot be read");
    return clean(*found, path);
  }
  const std::string given = environment("PENSTOCK_TOKEN");
  if (!given.empty()) return clean(given, "PENSTOCK_TOKEN");
  if (!is_loopback(address)) return "";
  const std::string path = home_folder() + "/token";
  return clean(content_of(path).value_or(""), path);
}

void check_secrecy(const Configuration& configuration, const std::string& where) {
  if (configuration.token.empty() || configuration.tls || configuration.insecure || is_loopback(configuration.address))
    return;
  throw ConfigError(where + ": the token would travel to " + configuration.address +
                    " in plain text; give tls ({} trusts what the system trusts), or insecure: true if something in "
                    "between encrypts");
}

}  // namespace penstock
