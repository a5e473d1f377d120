// What network interfaces there are, asked of the system by netlink. Not by getifaddrs(), which waits without a limit
// and ends the process if somebody closes its socket meanwhile.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "bootstrap/connect.h"
#include "bootstrap/connection.h"
#include "bootstrap/interfaces.h"

namespace nitinol {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kAnswerBytes = 64 * 1024;  // the system sends at most 32 KB at once
constexpr int kMostAttempts = 10;

struct Question {
  nlmsghdr header;
  rtgenmsg about;
};

struct Link {
  std::string name;
  bool up = false;
};

/// Steps over the parts of a message: headers of type Header that say how long each part is, with their padding.
template <class Header, class Visit>
void for_each_part(std::span<const std::byte> bytes, Visit&& visit) {
  while (bytes.size() >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    std::size_t size = 0;
    if constexpr (std::is_same_v<Header, nlmsghdr>) {
      size = header.nlmsg_len;
    } else {
      size = header.rta_len;
    }
    if (size < sizeof(Header) || size > bytes.size()) return;
    visit(header, bytes.subspan(sizeof(Header), size - sizeof(Header)));
    bytes = bytes.subspan(std::min(bytes.size(), std::size_t{NLMSG_ALIGN(size)}));
  }
}

template <class Body>
bool take(std::span<const std::byte>& bytes, Body& body) {
  if (bytes.size() < sizeof(Body)) return false;
  std::memcpy(&body, bytes.data(), sizeof(Body));
  bytes = bytes.subspan(std::min(bytes.size(), std::size_t{NLMSG_ALIGN(sizeof(Body))}));
  return true;
}

std::string text_of(std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  return {begin, ::strnlen(begin, bytes.size())};
}

/// One conversation with the system.
class Conversation {
 public:
  Conversation() : fd_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)) {
    if (!fd_) fail_errno(errno, "creating a socket to list the network interfaces");
  }

  /// Hands every message of the answer to `visit`. False: things changed meanwhile, and it has to be asked again.
  template <class Visit>
  bool ask(std::uint16_t what, Visit&& visit) {
    Question question{};
    question.header.nlmsg_len = NLMSG_LENGTH(sizeof(question.about));
    question.header.nlmsg_type = what;
    question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    question.header.nlmsg_seq = ++sequence_;
    question.about.rtgen_family = AF_UNSPEC;
    if (::send(fd_.get(), &question, question.header.nlmsg_len, kNeverWait) < 0) {
      fail_errno(errno, "asking for the network interfaces");
    }
    bool consistent = true;
    bool done = false;
    while (!done) {
      for_each_part<nlmsghdr>(hear(), [&](const nlmsghdr& header, std::span<const std::byte> body) {
        if (header.nlmsg_seq != sequence_) return;
        if ((header.nlmsg_flags & NLM_F_DUMP_INTR) != 0) consistent = false;
        if (header.nlmsg_type == NLMSG_ERROR) fail_with(body);
        if (header.nlmsg_type == NLMSG_DONE) done = true;
        if (!done) visit(header, body);
      });
    }
    return consistent;
  }

 private:
  [[noreturn]] static void fail_with(std::span<const std::byte> body) {
    nlmsgerr error{};
    fail_errno(take(body, error) ? -error.error : EPROTO, "listing the network interfaces (netlink)");
  }

  std::span<const std::byte> hear() {
    while (true) {
      wait_for_fd(fd_.get(), POLLIN, deadline_, {});
      const auto got = ::recv(fd_.get(), answer_.data(), answer_.size(), kNeverWait);
      if (got > 0) return std::span(answer_).first(static_cast<std::size_t>(got));
      if (got == 0) fail(ncclSystemError, "listing the network interfaces (netlink): no answer");
      if (errno != EAGAIN && errno != EINTR) fail_errno(errno, "listing the network interfaces (netlink)");
    }
  }

  UniqueFd fd_;
  Deadline deadline_ = std::chrono::steady_clock::now() + kPatience;
  std::uint32_t sequence_ = 0;
  std::vector<std::byte> answer_ = std::vector<std::byte>(kAnswerBytes);
};

void add_link(std::span<const std::byte> body, std::map<unsigned, Link>& links) {
  ifinfomsg info{};
  if (!take(body, info)) return;
  Link& link = links[static_cast<unsigned>(info.ifi_index)];
  link.up = (info.ifi_flags & IFF_UP) != 0;
  for_each_part<rtattr>(body, [&](const rtattr& attribute, std::span<const std::byte> value) {
    if (attribute.rta_type == IFLA_IFNAME) link.name = text_of(value);
  });
}

void add_address(std::span<const std::byte> body, const std::map<unsigned, Link>& links,
                 std::vector<NetworkInterface>& interfaces) {
  ifaddrmsg info{};
  if (!take(body, info) || (info.ifa_family != AF_INET && info.ifa_family != AF_INET6)) return;
  const auto link = links.find(info.ifa_index);
  if (link == links.end() || !link->second.up) return;
  NetworkInterface interface;
  interface.name = link->second.name;
  interface.prefix_bits = info.ifa_prefixlen;
  interface.address.family = info.ifa_family;
  const std::size_t bytes = info.ifa_family == AF_INET ? 4 : 16;
  std::span<const std::byte> local;  // unlike the address, it is never that of a link's other end
  std::span<const std::byte> address;
  for_each_part<rtattr>(body, [&](const rtattr& attribute, std::span<const std::byte> value) {
    if (attribute.rta_type == IFA_LOCAL) local = value;
    if (attribute.rta_type == IFA_ADDRESS) address = value;
    if (attribute.rta_type == IFA_LABEL) interface.name = text_of(value);
  });
  if (local.empty()) local = address;
  if (local.size() < bytes) return;
  std::memcpy(interface.address.host.data(), local.data(), bytes);
  if (interface.address.is_link_local()) interface.address.scope = info.ifa_index;
  interfaces.push_back(std::move(interface));
}

}  // namespace

std::vector<NetworkInterface> list_interfaces() {
  std::vector<NetworkInterface> interfaces;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    Conversation conversation;
    std::map<unsigned, Link> links;
    interfaces.clear();
    const bool has_links = conversation.ask(RTM_GETLINK, [&](const nlmsghdr& header, std::span<const std::byte> body) {
      if (header.nlmsg_type == RTM_NEWLINK) add_link(body, links);
    });
    const bool has_all = conversation.ask(RTM_GETADDR, [&](const nlmsghdr& header, std::span<const std::byte> body) {
      if (header.nlmsg_type == RTM_NEWADDR) add_address(body, links, interfaces);
    });
    if (has_links && has_all) break;
  }
  return interfaces;
}

}  // namespace nitinol
