#include "penstock/configuration.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gateway.hpp"
#include "penstock/errors.hpp"
#include "scratch.hpp"

namespace penstock {
namespace {

using nlohmann::json;

// RL4Sys' own example (shared/rl4sys/luna_conf.json).
const char* const kLuna = R"({
  "client_id": "luna-landing", "algorithm_name": "PPO",
  "algorithm_parameters": {"batch_size": 512, "act_dim": 4, "seed": 0, "traj_per_epoch": 256, "clip_ratio": 0.2,
    "gamma": 0.99, "lam": 0.95, "pi_lr": 3e-4, "vf_lr": 1e-3, "train_pi_iters": 80, "train_v_iters": 80,
    "target_kl": null, "input_size": 8},
  "act_limit": 1.0, "max_traj_length": 1000, "type": "onpolicy", "train_server_address": "localhost:50051",
  "send_frequency": 10})";

std::string error_of(const json& raw) {
  try {
    parse_configuration(raw.dump(), "conf.json");
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

json luna(const char* pointer, json value) {
  json raw = json::parse(kLuna);
  raw[json::json_pointer(pointer)] = std::move(value);
  return raw;
}

TEST(Configuration, OfRL4SysIsReadAsItIs) {
  const Configuration found = parse_configuration(kLuna);
  EXPECT_EQ(found.policy, "luna-landing");
  EXPECT_EQ(found.address, "localhost:50051");
  EXPECT_EQ(found.max_traj_length, 1000u);
  EXPECT_EQ(found.send_frequency, 10u);
  ASSERT_TRUE(found.shape);
  EXPECT_EQ(found.shape->observation, std::vector<std::size_t>{8});
  EXPECT_EQ(found.shape->actions, 4u);
  EXPECT_FALSE(found.shape->continuous);
}

TEST(Configuration, TheGatewayIsToldWhatIsTrainedAndNoSecrets) {
  json raw = luna("/token", "secret-token");
  raw["spool"] = {{"folder", "/somewhere"}};
  const Configuration found = parse_configuration(raw.dump());
  EXPECT_EQ(found.token, "secret-token");
  EXPECT_EQ(found.spool_folder, "/somewhere/luna-landing");
  EXPECT_EQ(found.trained.find("secret"), std::string::npos);
  EXPECT_EQ(found.trained.find("somewhere"), std::string::npos);
  EXPECT_EQ(json::parse(found.trained).at("algorithm_parameters"), raw.at("algorithm_parameters"));
}

struct Wrong {
  const char* pointer;
  json value;
  const char* sentence;
};

class WrongKeys : public testing::TestWithParam<Wrong> {};

TEST_P(WrongKeys, AreNamedWithTheFix) {
  EXPECT_EQ(error_of(luna(GetParam().pointer, GetParam().value)), std::string("conf.json: ") + GetParam().sentence);
}

INSTANTIATE_TEST_SUITE_P(
    Every, WrongKeys,
    testing::Values(
        Wrong{"/client-id", "x", "there is no key client-id; did you mean 'client_id'?"},
        Wrong{"/algorithm_parameters/gama", 0.9, "there is no key algorithm_parameters.gama; did you mean 'gamma'?"},
        Wrong{"/spool", {{"size", 3}}, "there is no key spool.size; known: folder, max_bytes"},
        Wrong{"/algorithm_parameters/gamma", 1.5, "algorithm_parameters.gamma must be a number from 0 to 1, not 1.5"},
        Wrong{"/algorithm_parameters/pi_lr", 0, "algorithm_parameters.pi_lr must be a number above 0 to 1, not 0"},
        Wrong{"/algorithm_parameters/target_kl", "x",
              "algorithm_parameters.target_kl must be a number above 0 to 1000 or null, not \"x\""},
        Wrong{"/algorithm_parameters/batch_size", 0.5,
              "algorithm_parameters.batch_size must be a whole number from 1 to 1048576, not 0.5"},
        Wrong{"/send_frequency", true, "send_frequency must be a whole number from 1 to 10000, not true"},
        Wrong{"/type", "sometimes", "type must be one of onpolicy, offpolicy, not \"sometimes\""},
        Wrong{"/mode", 3, "mode must be one of act, shadow, off, not 3"},
        Wrong{"/masked", 1, "masked must be true or false, not 1"},
        Wrong{"/spool", 7, "spool must be an object, not 7"},
        Wrong{"/observation_shape", json::array(),
              "observation_shape must be a list of whole numbers from 1 to 1048576, not []"},
        Wrong{"/token", "", "token must be a text, not what stands there"},
        Wrong{"/train_server_address", "localhost", "train_server_address must be HOST:PORT, not 'localhost'"},
        Wrong{"/client_id", "../x",
              "client_id must name the policy with 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter "
              "or digit, not '../x'"},
        Wrong{"/observation_shape", {4, 4},
              "algorithm_parameters.input_size is 8, but observation_shape has 16 entries; leave one out"},
        Wrong{"/fallback", {{"action", 4}}, "fallback.action must be a whole number from 0 to 3, not 4"},
        Wrong{"/tls", {{"ca", "/nowhere.pem"}}, "tls.ca names /nowhere.pem, which is not a file"}));

TEST(Configuration, WhatContradictsItselfIsRefused) {
  json raw = luna("/continuous", true);
  raw["masked"] = true;
  EXPECT_EQ(error_of(raw), "conf.json: masked is for choices; with continuous actions leave it out");
  raw = luna("/algorithm_name", "SAC");
  raw["continuous"] = false;
  EXPECT_EQ(error_of(raw), "conf.json: SAC acts with numbers; leave continuous out or write true");
  raw = json::parse(kLuna);
  raw["algorithm_parameters"].erase("act_dim");
  EXPECT_EQ(error_of(raw), "conf.json: algorithm_parameters.act_dim is missing; it says what the policy sees and does");
  raw = luna("/token", "a");
  raw["token_file"] = "b";
  EXPECT_EQ(error_of(raw), "conf.json: token and token_file are both given; leave one out");
}

TEST(Configuration, FilesThatCannotBeReadAreNamed) {
  const ScratchFolder folder;
  EXPECT_THROW(load_configuration((folder.path / "none.json").string()), ConfigError);
  EXPECT_THROW(load_configuration(folder.write("a.yaml", "client_id: x")), ConfigError);
  EXPECT_THROW(load_configuration(folder.write("b.json", "{")), ConfigError);
  EXPECT_THROW(load_configuration(folder.write("c.json", "[]")), ConfigError);
  EXPECT_THROW(load_configuration(folder.write("d.json", std::string((1 << 20) + 1, ' '))), ConfigError);
  EXPECT_EQ(load_configuration(folder.write("e.json", kLuna)).policy, "luna-landing");
}

TEST(Configuration, ATokenDoesNotTravelInPlainText) {
  ::unsetenv("PENSTOCK_TOKEN");
  json raw = luna("/token", "secret-token");
  for (const char* here : {"localhost:1", "127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "[0:0::1]:1"}) {
    raw["train_server_address"] = here;
    EXPECT_EQ(error_of(raw), "") << here;
  }
  for (const char* there : {"gateway.example:1", "127.evil.example:1", "10.0.0.1:1", "[2001:db8::1]:1", "localhost.evil:1"}) {
    raw["train_server_address"] = there;
    EXPECT_EQ(error_of(raw), std::string("conf.json: the token would travel to ") + there +
                                 " in plain text; give tls ({} trusts what the system trusts), or insecure: true if "
                                 "something in between encrypts");
  }
  raw["tls"] = json::object();
  EXPECT_EQ(error_of(raw), "");
  raw.erase("tls");
  raw["insecure"] = true;
  EXPECT_EQ(error_of(raw), "");
  auto changed = parse_configuration(raw.dump());
  changed.insecure = false;
  EXPECT_THROW(connect_gateway(changed), ConfigError);
}

TEST(Configuration, TheTokenIsFoundInItsPlaces) {
  const ScratchFolder folder;
  ::unsetenv("PENSTOCK_TOKEN");
  ::setenv("PENSTOCK_HOME", folder.path.c_str(), 1);
  EXPECT_EQ(parse_configuration(kLuna).token, "");
  folder.write("token", "from-home\n");
  EXPECT_EQ(parse_configuration(kLuna).token, "from-home");
  // a token for this machine is no business of another
  for (const char* there : {"gateway.example:50051", "127.evil.example:50051"})
    EXPECT_EQ(parse_configuration(luna("/train_server_address", there).dump()).token, "") << there;
  ::setenv("PENSTOCK_TOKEN", "from-environment", 1);
  EXPECT_EQ(parse_configuration(kLuna).token, "from-environment");
  EXPECT_EQ(parse_configuration(luna("/token_file", folder.write("t", " from-file ")).dump()).token, "from-file");
  EXPECT_EQ(parse_configuration(luna("/token", "given").dump()).token, "given");
  EXPECT_EQ(error_of(luna("/token", "two words")),
            "conf.json: token does not hold a token: it is too long or has letters no token has");
  ::unsetenv("PENSTOCK_TOKEN");
  ::unsetenv("PENSTOCK_HOME");
}

}  // namespace
}  // namespace penstock
