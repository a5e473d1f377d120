#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/interfaces.h"

namespace nitinol {
namespace {

TEST(ListInterfaces, GivesWhatTheCLibraryGives) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(0, getifaddrs(&list));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::pair<std::string, SocketAddress>> expected;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto address = SocketAddress::from_sockaddr(entry->ifa_addr);
    if (address && (entry->ifa_flags & IFF_UP) != 0) expected.emplace_back(entry->ifa_name, *address);
  }
  std::vector<std::pair<std::string, SocketAddress>> listed;
  for (const NetworkInterface& interface : list_interfaces()) listed.emplace_back(interface.name, interface.address);
  EXPECT_EQ(expected, listed);
}

}  // namespace
}  // namespace nitinol
