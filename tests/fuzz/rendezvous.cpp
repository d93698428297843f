// What comes from a socket during the rendezvous. The first byte says as what the rest is read.
#include <cstring>
#include <deque>

#include "fuzz.h"
#include "run/rendezvous/auth.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/rendezvous/message.h"

namespace tenon::fuzz {
namespace {

using Errors = std::vector<Error>;

Errors frames_as_they_are(Bytes bytes) {
  run::Opener opener("key");
  while (!bytes.empty()) {
    opener.feed(bytes.take(bytes.byte()));
    const auto payload = opener.next();
    if (!payload.ok()) return {payload.error()};
    if (payload->has_value()) broken("a frame without a proof is opened");
  }
  return {};
}

// Frames that were sealed, handed over in pieces; odd lengths damage the piece.
Errors frames_sealed(Bytes bytes) {
  run::Sealer sealer("key");
  run::Opener opener("key");
  std::deque<std::string> sent;
  bool damaged = false;
  while (!bytes.empty()) {
    const std::string payload(bytes.take(bytes.byte()));
    auto frame = sealer.seal(payload);
    if (!frame.ok()) return {frame.error()};
    sent.push_back(payload);
    const uint8_t how = bytes.byte();
    if (how % 2 == 1) {
      (*frame)[how % frame->size()] ^= 1;
      damaged = true;
    }
    opener.feed(std::string_view(*frame).substr(0, how));
    if (frame->size() > how) opener.feed(std::string_view(*frame).substr(how));
    const auto opened = opener.next();
    if (!opened.ok())
      return damaged ? Errors{opened.error()} : (broken("a sealed frame is refused"), Errors{});
    if (!opened->has_value()) continue;
    if (**opened != sent.front()) broken("a damaged frame is opened");
    sent.pop_front();
  }
  return {};
}

Errors request(Bytes bytes) {
  const std::string text(bytes.rest());
  const auto request = run::decode_request(text);
  if (request && run::encode(*request) != text && request->kind == run::Request::Kind::kSet)
    broken("a request changes");
  return {};
}

Errors reply(Bytes bytes) {
  const std::string text(bytes.rest());
  const auto reply = run::decode_reply(text);
  if (!reply) return {};
  if (run::encode(*reply) != text) broken("a reply changes");
  if (reply->kind > 0) broken("a reply that is neither an answer nor an error");
  return {};
}

// Requests as the server answers them, after each other.
Errors requests(Bytes bytes) {
  run::MemoryRendezvous store;
  Errors out;
  while (!bytes.empty()) {
    const uint8_t what = bytes.byte();
    const std::string key(bytes.take(what >> 2));
    if (what % 4 == 0) {
      const Status status = store.set(key, bytes.take(bytes.byte()));
      if (!status.ok()) out.push_back(status.error());
    } else if (what % 4 == 1) {
      const Status status = store.set(std::string(run::kMaxKeyBytes, 'k') + key, "");
      if (!status.ok()) out.push_back(status.error());
    } else if (what % 4 == 2) {
      const auto value = store.get(key, 0);
      if (!value.ok()) out.push_back(value.error());
    } else {
      store.abort(key);
    }
  }
  return out;
}

Errors secret(Bytes bytes) {
  const auto secret = run::secret_from_hex(bytes.rest());
  if (!secret.ok()) return {secret.error()};
  const Status checked = run::check_secret(*secret, "host:1");
  return checked.ok() ? Errors{} : Errors{checked.error()};
}

Errors hello(Bytes bytes) {
  const std::string text(bytes.rest());
  if (run::rank_of_hello(text) && text.size() != run::kHelloBytes) broken("a hello of another length");
  return {};
}

Errors feed_message(std::string_view input) {
  constexpr Errors (*kReaders[])(Bytes) = {frames_as_they_are, frames_sealed, request, reply,
                                           requests,           secret,        hello};
  Bytes bytes(input);
  const size_t which = bytes.byte() % std::size(kReaders);
  return kReaders[which](bytes);
}

}  // namespace

const Target& rendezvous() {
  static const Target target{"rendezvous",
                             Form::bytes,
                             feed_message,
                             {"W020", "W022", "W024", "W025", "W026", "W027"},
                             {"message.cpp", "auth.cpp", "key_store.cpp", "memory_rendezvous.cpp"},
                             {{"W021", "OpenSSL without its default provider"}}};
  return target;
}

}  // namespace tenon::fuzz
