#include "base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>

#include "base/temporary_folder_testing.h"
#include "base/unique_fd.h"

namespace nitinol {
namespace {

long files_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.file("")), {});
}

TEST(WholeFile, IsMadeOrReplaced) {
  const TemporaryFolder folder;
  EXPECT_EQ(write_whole_file(folder.file("a"), "long before"), 0);
  EXPECT_EQ(write_whole_file(folder.file("a"), "now"), 0);
  EXPECT_EQ(folder.read("a"), "now");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(WholeFile, StaysAsItWasIfThereIsNoRoom) {
  const TemporaryFolder folder;
  folder.write("a", "before");
  const auto write_with_little_room = [&] {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(write_whole_file(folder.file("a"), std::string(2000, 'x')));
  };
  EXPECT_EXIT(write_with_little_room(), ::testing::ExitedWithCode(EFBIG), "");
  EXPECT_EQ(folder.read("a"), "before");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(WholeFile, WhatIsWrongIsTold) {
  const TemporaryFolder folder;
  EXPECT_EQ(write_whole_file(folder.file("none/a"), "text"), ENOENT);
  EXPECT_EQ(write_whole_file(folder.file(""), "text"), EISDIR);
  EXPECT_EQ(write_whole_file("", "text"), ENOENT);
  EXPECT_EQ(write_whole_file("/dev/full", "text"), ENOSPC);
}

TEST(WholeFile, LinksAndDevicesStayWhatTheyAre) {
  const TemporaryFolder folder;
  folder.write("a", "before");
  std::filesystem::create_symlink(folder.file("a"), folder.file("link"));
  EXPECT_EQ(write_whole_file(folder.file("link"), "now"), 0);
  EXPECT_EQ(folder.read("a"), "now");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(write_whole_file("/dev/null", "text"), 0);
}

/// Whoever opens one to write waits for a reader otherwise.
TEST(WholeFile, AFifoIsWrittenToIfSomebodyReadsIt) {
  const TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(write_whole_file(fifo, "text"), ENXIO);
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_EQ(write_whole_file(fifo, "text"), 0);
  std::array<char, 16> got{};
  EXPECT_EQ(read(reader.get(), got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "text");
}

TEST(WholeFile, TheNameMayBeAsLongAsAnother) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  EXPECT_EQ(write_whole_file(folder.file(name), "text"), 0);
  EXPECT_EQ(folder.read(name), "text");
}

}  // namespace
}  // namespace nitinol
