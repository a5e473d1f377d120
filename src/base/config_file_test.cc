#include "base/config_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/settings_testing.h"
#include "base/temporary_folder_testing.h"
#include "base/unique_fd.h"

namespace nitinol {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ParseConfiguration, ValueIsAllThatFollowsTheFirstEqualsSign) {
  EXPECT_THAT(parse_configuration("NCCL_SOCKET_IFNAME==ens1f0\nB=x=y"),
              ElementsAre(Pair("NCCL_SOCKET_IFNAME", "=ens1f0"), Pair("B", "x=y")));
}

TEST(ParseConfiguration, KeepsSpacesCommentsAndCarriageReturns) {
  EXPECT_THAT(parse_configuration("A = b \nC=1 # one\nD=2\r\n"),
              ElementsAre(Pair("A ", " b "), Pair("C", "1 # one"), Pair("D", "2\r")));
}

TEST(ParseConfiguration, LeavesOutCommentsAndLinesThatAssignNothing) {
  EXPECT_THAT(parse_configuration("#A=1\nB\n\n=2\n"), IsEmpty());
  EXPECT_THAT(parse_configuration(""), IsEmpty());
}

TEST(ParseConfiguration, CommentsBeginInTheFirstColumnOnly) {
  EXPECT_THAT(parse_configuration(" #A=1"), ElementsAre(Pair(" #A", "1")));
}

TEST(ParseConfiguration, AcceptsALastLineWithoutNewlineAndEmptyValues) {
  EXPECT_THAT(parse_configuration("A=\nB=2"), ElementsAre(Pair("A", ""), Pair("B", "2")));
}

TEST(ParseConfiguration, LeavesOutLinesWithZeroBytes) {
  EXPECT_THAT(parse_configuration(std::string_view("A=1\0\nB=2", 8)), ElementsAre(Pair("B", "2")));
}

class ConfigurationFile : public testing::Test {
 protected:
  TemporaryFolder folder_;
  ScopedVariable first_{"NITINOL_TEST_FIRST", nullptr};
  ScopedVariable second_{"NITINOL_TEST_SECOND", nullptr};
};

TEST_F(ConfigurationFile, BecomesEnvironmentVariables) {
  apply_configuration_file(folder_.write("a.conf", "NITINOL_TEST_FIRST=one\nNITINOL_TEST_SECOND= two"));
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "one");
  EXPECT_STREQ(std::getenv("NITINOL_TEST_SECOND"), " two");
}

TEST_F(ConfigurationFile, NeverOverridesWhatIsSetEvenToTheEmptyString) {
  const ScopedVariable set("NITINOL_TEST_FIRST", "");
  apply_configuration_file(folder_.write("a.conf", "NITINOL_TEST_FIRST=one"));
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "");
}

TEST_F(ConfigurationFile, FirstLineForANameCounts) {
  apply_configuration_file(folder_.write("a.conf", "NITINOL_TEST_FIRST=one\nNITINOL_TEST_FIRST=two\n"));
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "one");
}

TEST_F(ConfigurationFile, MissingFileChangesNothing) {
  EXPECT_EQ(apply_configuration_file(folder_.file("none.conf")), "");
  EXPECT_EQ(std::getenv("NITINOL_TEST_FIRST"), nullptr);
}

TEST_F(ConfigurationFile, AFolderADeviceOrAFifoIsNotReadAndTold) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string wants = " and is not read: it must be a regular file";
  // One with a writer, too, who has written already.
  EXPECT_EQ(apply_configuration_file(fifo), "the configuration file " + fifo + " is a FIFO" + wants);
  const UniqueFd both(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  const std::string text = "NITINOL_TEST_FIRST=one\n";
  ASSERT_EQ(write(both.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(apply_configuration_file(fifo), "the configuration file " + fifo + " is a FIFO" + wants);
  EXPECT_EQ(apply_configuration_file("/dev/zero"), "the configuration file /dev/zero is a device" + wants);
  EXPECT_EQ(apply_configuration_file(folder_.file(".")),
            "the configuration file " + folder_.file(".") + " is a folder" + wants);
  EXPECT_EQ(std::getenv("NITINOL_TEST_FIRST"), nullptr);
}

TEST_F(ConfigurationFile, DevNullIsAnEmptyOne) { EXPECT_EQ(apply_configuration_file("/dev/null"), ""); }

TEST_F(ConfigurationFile, MayBeALinkToOne) {
  const std::string path = folder_.write("a.conf", "NITINOL_TEST_FIRST=one\n");
  const std::string link = folder_.file("link");
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(apply_configuration_file(link), "");
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "one");
}

TEST_F(ConfigurationFile, MayBeLong) {
  const std::string path = folder_.write("a.conf", "#" + std::string(100'000, 'x') + "\nNITINOL_TEST_FIRST=one\n");
  EXPECT_EQ(apply_configuration_file(path), "");
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "one");
}

TEST_F(ConfigurationFile, IsTheOneThatNcclConfFileNames) {
  const std::string path = folder_.write("named.conf", "NITINOL_TEST_FIRST=named\n");
  const ScopedVariable named("NCCL_CONF_FILE", path.c_str());
  apply_configuration_files();
  EXPECT_STREQ(std::getenv("NITINOL_TEST_FIRST"), "named");
}

TEST_F(ConfigurationFile, ThatIsNamedButMissingIsToldOf) {
  const std::string path = folder_.file("none.conf");
  const ScopedVariable named("NCCL_CONF_FILE", path.c_str());
  const std::vector<std::string> complaints = apply_configuration_files();
  ASSERT_FALSE(complaints.empty());
  EXPECT_EQ(complaints.front(), "the configuration file " + path +
                                    ", which NCCL_CONF_FILE names, cannot be read: No such file or directory");
}

}  // namespace
}  // namespace nitinol
