// What a client asks of a gateway, at the height of the protocol; grpc_gateway.cpp is the real one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "penstock/configuration.hpp"
#include "penstock_v1.pb.h"

namespace penstock {

struct Answer {
  enum Kind {
    ok,
    refused,      // only a person can mend it: configuration, token, protocol
    not_found,    // the gateway does not know the policy (any more): open it again
    unavailable,  // away, full or slow: try again
  };
  Kind kind = ok;
  std::string text;
};

// Thread-safe. Every call returns within `seconds`; none throws.
class Gateway {
 public:
  virtual ~Gateway() = default;
  virtual Answer open(const v1::OpenRequest& request, v1::OpenReply& reply, double seconds) = 0;
  virtual Answer send(const v1::SendRequest& request, v1::SendReply& reply, double seconds) = 0;
  // Hands over replies as they come, until the stream ends or `take` says false.
  virtual Answer fetch(const v1::FetchRequest& request, const std::function<bool(v1::FetchReply&)>& take,
                       double seconds) = 0;
  virtual Answer act(const v1::ActRequest& request, v1::ActReply& reply, double seconds) = 0;
  // The client is closing: end every open, fetch and act, now and later.
  virtual void stop_bringing() = 0;
  // Time is up: end every send too.
  virtual void stop_sending() = 0;
};

// Throws ConfigError where a file of `tls` cannot be read, or the token would travel in plain text.
std::unique_ptr<Gateway> connect_gateway(const Configuration& configuration);

}  // namespace penstock
