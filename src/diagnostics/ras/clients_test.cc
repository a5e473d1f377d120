#include "diagnostics/ras/clients.h"

#include <gtest/gtest.h>

namespace nitinol::ras {
namespace {

SocketAddress address_of(const char* text) {
  const auto where = split_host_and_port(text);
  return resolve(*where, AF_UNSPEC);
}

TEST(RasClients, AreOfThisHostOrNot) {
  EXPECT_TRUE(is_of_this_host(address_of("127.0.0.1:1")));
  EXPECT_TRUE(is_of_this_host(address_of("127.1.2.3:1")));
  EXPECT_TRUE(is_of_this_host(address_of("[::1]:1")));
  EXPECT_FALSE(is_of_this_host(address_of("192.0.2.1:1")));
  EXPECT_FALSE(is_of_this_host(address_of("[2001:db8::1]:1")));
}

TEST(RasSilences, EndInDeathOnceTheyAreTooLong) {
  Job job;
  job.processes[1].report.emplace();
  job.processes[2].trouble = "no answer";
  Silences patient(std::chrono::hours(1));
  patient.note(job);
  EXPECT_FALSE(job.processes[2].dead);
  Silences impatient(std::chrono::milliseconds(0));
  impatient.note(job);
  EXPECT_FALSE(job.processes[1].dead);
  EXPECT_TRUE(job.processes[2].dead);
  EXPECT_NE(job.processes[2].trouble.find("declared dead"), std::string::npos);
}

}  // namespace
}  // namespace nitinol::ras
