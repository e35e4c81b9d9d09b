// Made by clients/cpp/keys.py from src/penstock/client/keys.py; change it there.
#include "key_table.hpp"

namespace penstock {

const Table& top_keys() {
  static const Table table =
      {{"client_id", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
       {"algorithm_name", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
       {"algorithm_parameters", {Kind::group, 0.0, 1099511627776.0, {}, false, false}},
       {"act_limit", {Kind::number, 0.0, 1000000.0, {}, false, true}},
       {"max_traj_length", {Kind::whole, 1.0, 65536.0, {}, false, false}},
       {"type", {Kind::text, 0.0, 1099511627776.0, {"onpolicy", "offpolicy"}, false, false}},
       {"train_server_address", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
       {"send_frequency", {Kind::whole, 1.0, 10000.0, {}, false, false}},
       {"token", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
       {"token_file", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
       {"tls", {Kind::group, 0.0, 1099511627776.0, {}, false, false}},
       {"insecure", {Kind::flag, 0.0, 1099511627776.0, {}, false, false}},
       {"deadline_ms", {Kind::number, 0.0, 60000.0, {}, false, true}},
       {"spool", {Kind::group, 0.0, 1099511627776.0, {}, false, false}},
       {"fallback", {Kind::group, 0.0, 1099511627776.0, {}, false, false}},
       {"mode", {Kind::text, 0.0, 1099511627776.0, {"act", "shadow", "off"}, false, false}},
       {"inference", {Kind::text, 0.0, 1099511627776.0, {"local", "remote"}, false, false}},
       {"flush_seconds", {Kind::number, 0.05, 3600.0, {}, false, false}},
       {"poll_seconds", {Kind::number, 0.05, 30.0, {}, false, false}},
       {"masked", {Kind::flag, 0.0, 1099511627776.0, {}, false, false}},
       {"network", {Kind::group, 0.0, 1099511627776.0, {}, false, false}},
       {"observation_shape", {Kind::shape, 1.0, 1048576.0, {}, false, false}},
       {"continuous", {Kind::flag, 0.0, 1099511627776.0, {}, false, false}}};
  return table;
}

const std::map<std::string, Table>& group_keys() {
  static const std::map<std::string, Table> tables = {
      {"spool",
        {{"folder", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
         {"max_bytes", {Kind::whole, 65536.0, 1099511627776.0, {}, false, false}}}},
      {"fallback",
        {{"action", {Kind::any, 0.0, 1099511627776.0, {}, false, false}}}},
      {"tls",
        {{"ca", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
         {"cert", {Kind::text, 0.0, 1099511627776.0, {}, false, false}},
         {"key", {Kind::text, 0.0, 1099511627776.0, {}, false, false}}}},
      {"network",
        {{"body", {Kind::text, 0.0, 1099511627776.0, {"auto", "mlp", "cnn", "items"}, false, false}},
         {"hidden", {Kind::shape, 1.0, 1048576.0, {}, false, false}},
         {"activation", {Kind::text, 0.0, 1099511627776.0, {"tanh", "relu"}, false, false}},
         {"convolutions", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
         {"shared", {Kind::flag, 0.0, 1099511627776.0, {}, false, false}},
         {"normalize_observations", {Kind::flag, 0.0, 1099511627776.0, {}, false, false}}}},
  };
  return tables;
}

const Table& parameter_keys() {
  static const Table table =
      {{"batch_size", {Kind::whole, 1.0, 1048576.0, {}, false, false}},
       {"act_dim", {Kind::whole, 1.0, 65536.0, {}, false, false}},
       {"input_size", {Kind::whole, 1.0, 1048576.0, {}, false, false}},
       {"seed", {Kind::whole, 0.0, 9.223372036854776e+18, {}, false, false}},
       {"traj_per_epoch", {Kind::whole, 1.0, 1048576.0, {}, false, false}},
       {"clip_ratio", {Kind::number, 0.0, 1.0, {}, false, true}},
       {"gamma", {Kind::number, 0.0, 1.0, {}, false, false}},
       {"lam", {Kind::number, 0.0, 1.0, {}, false, false}},
       {"pi_lr", {Kind::number, 0.0, 1.0, {}, false, true}},
       {"vf_lr", {Kind::number, 0.0, 1.0, {}, false, true}},
       {"q_lr", {Kind::number, 0.0, 1.0, {}, false, true}},
       {"train_pi_iters", {Kind::whole, 1.0, 100000.0, {}, false, false}},
       {"train_v_iters", {Kind::whole, 1.0, 100000.0, {}, false, false}},
       {"train_q_iters", {Kind::whole, 1.0, 100000.0, {}, false, false}},
       {"target_kl", {Kind::number, 0.0, 1000.0, {}, true, true}},
       {"buf_size", {Kind::whole, 1.0, 1073741824.0, {}, false, false}},
       {"epsilon", {Kind::number, 0.0, 1.0, {}, false, false}},
       {"epsilon_min", {Kind::number, 0.0, 1.0, {}, false, false}},
       {"epsilon_decay_steps", {Kind::whole, 1.0, 1099511627776.0, {}, false, false}},
       {"polyak", {Kind::number, 0.0, 1.0, {}, false, false}},
       {"target_rate", {Kind::number, 0.0, 1.0, {}, false, true}},
       {"hidden_sizes", {Kind::shape, 1.0, 1048576.0, {}, false, false}},
       {"activation", {Kind::text, 0.0, 1099511627776.0, {"tanh", "relu"}, false, false}},
       {"entropy", {Kind::number, 0.0, 1000.0, {}, false, false}},
       {"ent_coef", {Kind::number, 0.0, 1000.0, {}, false, false}},
       {"automatic_temperature", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"batch", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"buffer", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"clip_range", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"double", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"duelling", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"epochs", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"epsilon_end", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"epsilon_spread", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"epsilon_start", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"epsilon_steps", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"gae_lambda", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"gradient_steps", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"initial_temperature", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"learning_rate", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"learning_starts", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"max_grad_norm", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"minibatch", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"minibatches", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"n_step", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"normalize_advantages", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"normalize_rewards", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"prioritised", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"priority_alpha", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"priority_beta", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"rho_clip", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"schedule_steps", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"separate", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"target_entropy_scale", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"trace_clip", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"value_coefficient", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"value_epochs", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"value_gradient_steps", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"value_learning_rate", {Kind::any, 0.0, 1099511627776.0, {}, false, false}},
       {"vtrace_lambda", {Kind::any, 0.0, 1099511627776.0, {}, false, false}}};
  return table;
}

const std::vector<std::string>& trained_keys() {
  static const std::vector<std::string> names = {"client_id", "algorithm_name", "algorithm_parameters", "act_limit", "max_traj_length", "type", "masked", "network", "observation_shape", "continuous"};
  return names;
}

const std::vector<std::string>& shape_parameters() {
  static const std::vector<std::string> names = {"act_dim", "input_size"};
  return names;
}

const std::vector<std::string>& known_algorithms() {
  static const std::vector<std::string> names = {"ppo", "dqn", "sac", "impala", "reinforce"};
  return names;
}

}  // namespace penstock
