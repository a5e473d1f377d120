// The parts without sockets: choice of interfaces, ids, addresses, tree arithmetic, the proof, frames and messages.
#include <gmock/gmock.h>

#include <cstring>

#include "bootstrap/exchange.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/messages.h"
#include "bootstrap/testing.h"
#include "bootstrap/tree_shape.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SocketAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  SocketAddress address;
  address.family = AF_INET;
  address.host = {a, b, c, d};
  return address;
}

SocketAddress v6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  SocketAddress address;
  address.family = AF_INET6;
  address.host[0] = first;
  address.host[1] = second;
  address.host[15] = last;
  return address;
}

const std::vector<NetworkInterface> kMachine = {
    {"lo", v4(127, 0, 0, 1), 8},   {"docker0", v4(172, 17, 0, 1), 16}, {"virbr0", v4(192, 168, 122, 1), 24},
    {"eth0", v4(10, 1, 0, 5), 16}, {"eth1", v4(10, 2, 0, 5), 16},      {"eth10", v4(10, 3, 0, 5), 16},
    {"ib0", v4(11, 0, 0, 5), 8},   {"lo", v6(0, 0, 1), 128},           {"eth0", v6(0xfe, 0x80, 5), 64},
    {"ib0", v6(0xfd, 0, 5), 64},
};

std::vector<std::string> chosen(const std::string& list, int family = AF_INET,
                                std::optional<SocketAddress> near = std::nullopt,
                                const std::vector<NetworkInterface>& machine = kMachine) {
  BootstrapOptions options;
  options.interfaces = list;
  options.family = family;
  std::vector<std::string> names;
  for (const auto& interface : select_interfaces(machine, options, near)) names.push_back(interface.name);
  return names;
}

TEST(Interfaces, AListTakesPrefixesExactNamesAndExclusions) {
  EXPECT_THAT(chosen("eth"), ElementsAre("eth0", "eth1", "eth10"));
  EXPECT_THAT(chosen("eth1"), ElementsAre("eth1", "eth10"));
  EXPECT_THAT(chosen("=eth1"), ElementsAre("eth1"));
  EXPECT_THAT(chosen("=eth10,eth0"), ElementsAre("eth0", "eth10"));
  EXPECT_THAT(chosen("^eth,docker"), ElementsAre("lo", "virbr0", "ib0"));
  EXPECT_THAT(chosen("^=eth1,lo"), ElementsAre("docker0", "virbr0", "eth0", "eth10", "ib0"));
  EXPECT_THAT(chosen("eth1:4,ib:1"), ElementsAre("eth1", "eth10", "ib0"));
  EXPECT_THAT(chosen("lo"), ElementsAre("lo"));
  EXPECT_THAT(chosen("ETH0"), IsEmpty());
  EXPECT_THAT(chosen(" eth0"), IsEmpty());
}

std::vector<NetworkInterface> without(std::vector<std::string> prefixes) {
  auto machine = kMachine;
  std::erase_if(machine, [&](const auto& interface) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& p) { return interface.name.starts_with(p); });
  });
  return machine;
}

TEST(Interfaces, TheAutomaticChoiceGoesByClass) {
  EXPECT_THAT(chosen(""), ElementsAre("ib0"));
  EXPECT_THAT(chosen("", AF_INET, std::nullopt, without({"ib"})), ElementsAre("eth0", "eth1", "eth10"));
  EXPECT_THAT(chosen("", AF_INET, std::nullopt, without({"ib", "eth"})), ElementsAre("docker0"));
  EXPECT_THAT(chosen("", AF_INET, std::nullopt, without({"ib", "eth", "docker"})), ElementsAre("lo"));
  EXPECT_THAT(chosen("", AF_INET, std::nullopt, without({"ib", "eth", "docker", "lo"})), ElementsAre("virbr0"));
  EXPECT_THAT(chosen("", AF_INET, v4(10, 2, 99, 1)), ElementsAre("eth1"));
  EXPECT_THAT(chosen("", AF_INET, v4(8, 8, 8, 8)), ElementsAre("ib0"));
}

SocketAddress on_link(std::uint8_t last, std::uint32_t scope) {
  SocketAddress address = v6(0xfe, 0x80, last);
  address.scope = scope;
  return address;
}

TEST(Interfaces, OfLinkLocalAddressesTheLinkCounts) {
  const std::vector<NetworkInterface> machine = {{"eth0", on_link(5, 2), 64}, {"eth1", on_link(6, 3), 64}};
  EXPECT_THAT(chosen("", AF_INET6, on_link(9, 3), machine), ElementsAre("eth1"));
  EXPECT_THAT(chosen("", AF_INET6, on_link(9, 0), machine), ElementsAre("eth0", "eth1"));
}

TEST(Interfaces, TheFamilyCountsAndTheIpv6LoopbackDoesNot) {
  EXPECT_THAT(chosen("", AF_INET6), ElementsAre("ib0"));
  EXPECT_THAT(chosen("eth0", AF_INET6), ElementsAre("eth0"));
  EXPECT_THAT(chosen("lo", AF_INET6), IsEmpty());
  EXPECT_THAT(chosen("eth0", AF_UNSPEC), ElementsAre("eth0", "eth0"));
}

TEST(Interfaces, NoneIsAnErrorThatSaysSo) {
  BootstrapOptions options;
  options.interfaces = "=nosuchthing";
  const Error error = error_of([&] { make_unique_id(options); });
  EXPECT_EQ(error.code(), ncclInvalidUsage);
  EXPECT_THAT(error.what(), HasSubstr("no socket interface found"));
}

TEST(UniqueIds, SurviveTheirBytesAndDiffer) {
  const auto options = testing::quick_options();
  const UniqueId a = make_unique_id(options);
  const UniqueId b = make_unique_id(options);
  EXPECT_EQ(parse_unique_id(serialise(a)), a);
  EXPECT_FALSE(a == b);
  EXPECT_NE(short_hash(a), short_hash(b));
}

TEST(UniqueIds, OtherBytesAreRefused) {
  ncclUniqueId bytes{};
  EXPECT_EQ(error_of([&] { parse_unique_id(bytes); }).code(), ncclInvalidArgument);
  bytes = serialise(make_unique_id(testing::quick_options()));
  bytes.internal[41] = 9;  // the address family
  EXPECT_EQ(error_of([&] { parse_unique_id(bytes); }).code(), ncclInvalidArgument);
}

TEST(UniqueIds, OnesThatWereDamagedOnTheirWayAreRefused) {
  const ncclUniqueId whole = serialise(make_unique_id(testing::quick_options()));
  for (const std::size_t used : {9, 40, 60, 75, 83, 91, 99, 107}) {  // the secret's first and last byte, and behind it
    ncclUniqueId bytes = whole;
    bytes.internal[used] ^= 0x10;
    EXPECT_EQ(error_of([&] { parse_unique_id(bytes); }).code(), ncclInvalidArgument) << used;
  }
  EXPECT_NO_THROW(parse_unique_id(whole));
}

TEST(UniqueIds, AnAddressGivesAllTheSameId) {
  BootstrapOptions options;
  for (const char* text : {"127.0.0.1:4711", "[::1]:4711", "localhost:4711"}) {
    options.comm_id = text;
    const UniqueId id = make_unique_id(options);
    EXPECT_EQ(id, make_unique_id(options));
    EXPECT_EQ(id.root.port, 4711);
    EXPECT_TRUE(id.from_address);
  }
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "::1:5", "[::1]5", ":77",
                           "a:1x", "[127.0.0.1]:5", "no such host:5"}) {
    options.comm_id = text;
    EXPECT_EQ(error_of([&] { make_unique_id(options); }).code(), ncclInvalidArgument) << text;
  }
}

TEST(UniqueIds, AnAddressOfAnotherFamilyThanIsAllowedIsToldSo) {
  BootstrapOptions options;
  options.comm_id = "127.0.0.1:4711";
  options.family = AF_INET6;
  const Error error = error_of([&] { make_unique_id(options); });
  EXPECT_EQ(error.code(), ncclInvalidArgument);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("(NCCL_SOCKET_FAMILY allows IPv6 alone)"));
}

TEST(TreeShapes, EveryRankIsReachedOnceAndPathsAgree) {
  for (const int n : {1, 2, 5, 6, 21, 64, 100}) {
    for (int blocks = 1; blocks <= n; blocks = blocks * 2 + 1) {
      const TreeShape shape(n, blocks);
      EXPECT_EQ(shape.block_end(blocks - 1), n);
      int edges = 0;
      for (int rank = 0; rank < n; ++rank) {
        const int block = shape.block_of(rank);
        EXPECT_LE(shape.block_begin(block), rank);
        EXPECT_LT(rank, shape.block_end(block));
        for (const int child : shape.children(rank)) {
          EXPECT_EQ(shape.parent(child), rank);
          EXPECT_EQ(shape.next_hop(rank, child), child);
          ++edges;
        }
        int at = rank;
        for (int hops = 0; at != n - 1 && hops < n; ++hops) at = shape.next_hop(at, n - 1);
        EXPECT_EQ(at, n - 1);
      }
      EXPECT_EQ(edges, n - 1);
    }
  }
}

TEST(TreeShapes, BlocksAreThoseOfTheScalableInit) {
  const TreeShape shape(7, 3);
  EXPECT_EQ(shape.block_begin(0), 0);
  EXPECT_EQ(shape.block_begin(1), 3);
  EXPECT_EQ(shape.block_begin(2), 5);
}

TEST(Proof, BothSidesProveAndNothingElsePasses) {
  const Secret key = random_secret();
  const ClientHandshake client(key);
  ServerHandshake server;
  EXPECT_EQ(server.hello(client.hello()), key_id(key));
  const AnswerBytes answer = server.answer(key);
  const auto proof = client.answer(answer);
  ASSERT_TRUE(proof.has_value());
  EXPECT_TRUE(server.verify(*proof));
  for (std::size_t i = 0; i < proof->size(); ++i) {
    ProofBytes wrong = *proof;
    wrong[i] ^= 1;
    EXPECT_FALSE(server.verify(wrong));
  }
  // A server's proof sent back is no client's proof.
  ProofBytes reflected;
  std::memcpy(reflected.data(), answer.data() + 32, 32);
  EXPECT_FALSE(server.verify(reflected));
  // A server that does not know the key, and one that repeats an old answer.
  ServerHandshake stranger;
  stranger.hello(client.hello());
  EXPECT_FALSE(client.answer(stranger.answer(random_secret())).has_value());
  EXPECT_FALSE(ClientHandshake(key).answer(answer).has_value());
  HelloBytes garbage{};
  EXPECT_FALSE(server.hello(garbage).has_value());
}

TEST(Frames, AreCutFromAnyPieces) {
  std::vector<std::byte> stream;
  for (int i = 0; i < 5; ++i) {
    Frame frame;
    frame.operation = Operation::kBroadcast;
    frame.sequence = static_cast<std::uint64_t>(i);
    frame.payload.assign(static_cast<std::size_t>(i * 7), static_cast<std::byte>(i));
    const auto bytes = encode_frame(frame);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (std::size_t piece = 1; piece < stream.size(); piece += 3) {
    FrameReader reader;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(reader.feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at))));
    }
    for (std::uint64_t i = 0; i < 5; ++i) {
      const auto frame = reader.take();
      ASSERT_TRUE(frame.has_value());
      EXPECT_EQ(frame->sequence, i);
      EXPECT_EQ(frame->operation, Operation::kBroadcast);
      EXPECT_EQ(frame->payload, std::vector<std::byte>(i * 7, static_cast<std::byte>(i)));
    }
    EXPECT_FALSE(reader.take().has_value());
  }
}

TEST(Frames, RefusesOversizedAndUnknownOnes) {
  const auto feed = [](std::uint32_t length, std::uint8_t type, std::uint8_t operation) {
    ByteWriter writer;
    writer.integer(length);
    writer.integer(type);
    writer.integer(operation);
    writer.integer(std::uint16_t{0});
    writer.integer(std::uint64_t{0});
    const auto bytes = writer.take();
    return FrameReader().feed(bytes);
  };
  EXPECT_TRUE(feed(1u << 30, 7, 1));
  EXPECT_FALSE(feed((1u << 30) + 1, 7, 1));
  EXPECT_TRUE(feed(4096, 8, 0));
  EXPECT_FALSE(feed(4097, 8, 0));
  EXPECT_FALSE(feed(1, 0, 0));
  EXPECT_TRUE(feed(64u << 20, 13, 0));
  EXPECT_FALSE(feed((64u << 20) + 1, 13, 0));
  EXPECT_FALSE(feed(1, kLastFrameType + 1, 0));
  EXPECT_TRUE(feed(1, 7, kLastOperation));
  EXPECT_FALSE(feed(1, 7, kLastOperation + 1));
}

TEST(Messages, OfMeetingsSurviveTheirBytesAndNothingShorterOrLonger) {
  RegroupWord word;
  word.state = RegroupWord::State::kFailed;
  word.repairs = true;
  word.rank = 3;
  word.meeting = 5;
  word.number = 2;
  word.failures = 1;
  word.excluded = {0, 7, 8, kMostRegrouped - 1};
  word.sentence = std::string(2000, 'x');
  auto bytes = encode(word);
  EXPECT_LE(bytes.size(), kLargestControlFrame);
  const auto read = decode_regroup_word(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->state, word.state);
  EXPECT_TRUE(read->repairs);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->meeting, 5U);
  EXPECT_EQ(read->number, 2U);
  EXPECT_EQ(read->failures, 1U);
  EXPECT_EQ(read->excluded, word.excluded);
  EXPECT_EQ(read->sentence, word.sentence);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_regroup_word(std::span(bytes).first(size)).has_value());
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_regroup_word(bytes).has_value());
}

TEST(Messages, SurviveTheirBytesAndNothingShorterOrLonger) {
  Registration registration;
  registration.rank = 3;
  registration.nranks = 9;
  registration.ids = 2;
  registration.index = 1;
  registration.timeout_ms = 1234;
  registration.listener = v6(0xfd, 1, 7);
  registration.identity = {"host", 99};
  auto bytes = encode(registration);
  const auto read = decode_registration(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->listener, registration.listener);
  EXPECT_EQ(read->identity.host, "host");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_registration(std::span(bytes).first(size)).has_value());
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_registration(bytes).has_value());
}

TEST(Messages, TextsForLogsHoldNoControlCharacters) {
  const auto failure = decode_failure(encode(Failure{1, ncclSystemError, "a\nb\x1b[31m"}));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->sentence, "a?b?[31m");
  EXPECT_FALSE(decode_failure(encode(Failure{1, ncclSuccess, ""})).has_value());
  EXPECT_EQ(failure->parting, Parting::kFailed);
  for (const Parting parting : {Parting::kLost, Parting::kDeparted}) {
    EXPECT_EQ(decode_failure(encode(Failure{1, ncclRemoteError, "", parting}))->parting, parting);
  }
}

TEST(Messages, BlocksOutOfRangeAreRefused) {
  ByteWriter writer;
  writer.integer(std::uint32_t{2});
  writer.integer(std::uint64_t{1} << 60);
  EXPECT_FALSE(decode_blocks(writer.take(), 4).has_value());
  writer.integer(std::uint32_t{4});
  writer.integer(std::uint64_t{0});
  EXPECT_FALSE(decode_blocks(writer.take(), 4).has_value());
}

}  // namespace
}  // namespace nitinol
