// What waits in memory, and what leaves it for the spool.
#include "outbox.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "scratch.hpp"

namespace penstock {
namespace {

constexpr std::size_t kNumbers = 4096, kRows = 64;  // a trajectory weighs a megabyte

std::unique_ptr<Rows> ended(const std::shared_ptr<const Layout>& layout) {
  auto rows = std::make_unique<Rows>(layout, kRows);
  rows->length = kRows;
  rows->terminated = true;
  std::fill(rows->rewards.begin(), rows->rewards.end(), 1.0f);
  return rows;
}

TEST(Outbox, WhatWaitsInTheSpoolSaysForWhichRunItWasMade) {
  const ScratchFolder folder;
  Configuration configuration =
      parse_configuration(R"({"client_id": "test", "algorithm_parameters": {"input_size": 4096, "act_dim": 4}})");
  configuration.spool_folder = (folder.path / "spool").string();
  Counters counters;
  Outbox outbox(configuration, counters);
  const auto layout = std::make_shared<const Layout>(layout_of(*configuration.shape));
  for (const char* run : {"deleted-1", "begun-2"}) {
    outbox.set_run(run);
    outbox.put(ended(layout));
    outbox.pack_all();
  }
  outbox.store();
  outbox.close();
  Spool left(configuration.spool_folder, configuration.spool_bytes);
  left.adopt();
  std::vector<std::string> runs;
  for (; !left.empty(); left.keep_of_oldest({}))
    for (const auto& numbered : left.read_oldest()) {
      v1::Trajectory message;
      ASSERT_TRUE(message.ParseFromString(numbered.second));
      runs.push_back(message.run());
    }
  EXPECT_EQ(runs, (std::vector<std::string>{"deleted-1", "begun-2"}));
}

TEST(Outbox, MoreThanMemoryShouldHoldGoesToTheSpool) {
  const ScratchFolder folder;
  Configuration configuration = parse_configuration(
      R"({"client_id": "test", "algorithm_parameters": {"input_size": 4096, "act_dim": 4}})");
  configuration.spool_folder = (folder.path / "spool").string();
  configuration.spool_bytes = std::size_t{256} << 20;
  Counters counters;
  Outbox outbox(configuration, counters);
  const auto layout = std::make_shared<const Layout>(layout_of(*configuration.shape));
  ASSERT_EQ(layout->size, kNumbers);
  const auto stored = [&] {
    std::size_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path))
      if (entry.path().extension() == ".batch") bytes += entry.file_size();
    return bytes;
  };
  for (int i = 0; i < 20; ++i) outbox.put(ended(layout));
  outbox.pack_all();
  EXPECT_EQ(stored(), 0u) << "in ordinary times nothing touches the disk";
  for (int i = 0; i < 30; ++i) outbox.put(ended(layout));
  outbox.pack_all();
  EXPECT_EQ(outbox.waiting().trajectories, 50u);
  EXPECT_LE(outbox.waiting().bytes - stored(), std::size_t{33} << 20);
  EXPECT_TRUE(counters.dropped().empty());
  outbox.close();
}

}  // namespace
}  // namespace penstock
