// What waits in memory, and what leaves it for the spool.
#include "outbox.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "scratch.hpp"
#include "served.hpp"

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

class Losing : public testing::Test {
 protected:
  Outbox& outbox(const std::string& spool_folder) {
    configuration.spool_folder = spool_folder;
    return made.emplace(configuration, counters);
  }
  void put_one(Outbox& outbox) {
    outbox.put(ended(layout));
    outbox.pack_all();
  }
  double send(Outbox& outbox) {
    double pause = 0.0;
    outbox.send(gateway, reporter, Clock::now() + std::chrono::seconds(60), pause);
    return pause;
  }

  const ScratchFolder folder;
  Configuration configuration = parse_configuration(
      R"({"client_id": "test", "algorithm_parameters": {"input_size": 4096, "act_dim": 4}})");
  const std::shared_ptr<const Layout> layout = std::make_shared<const Layout>(layout_of(*configuration.shape));
  Counters counters;
  Reporter reporter{counters};
  ServedGateway gateway{4096, 4};
  std::optional<Outbox> made;
};

TEST_F(Losing, ABatchThatCannotBeReadNowIsKeptAndSentLater) {
  Outbox& box = outbox((folder.path / "spool").string());
  for (int i = 0; i < 3; ++i) {
    put_one(box);
    box.store();
  }
  {
    const NoFilesLeft none;
    EXPECT_THROW(send(box), DiskError);
  }
  EXPECT_EQ(box.waiting().trajectories, 3u);
  EXPECT_EQ(send(box), 0.0);
  EXPECT_EQ(gateway.stored(3).size(), 3u);
  EXPECT_TRUE(counters.dropped().empty());
}

TEST_F(Losing, WhatTheDiskDoesNotTakeWaitsInMemoryUntilTheEnd) {
  Outbox& box = outbox(folder.write("file", "") + "/below");
  box.check();
  EXPECT_EQ(counters.troubles().at("disk"), 1u) << "it is said before anything is lost";
  for (int i = 0; i < 20; ++i) {
    put_one(box);
    box.store();
  }
  EXPECT_EQ(box.waiting().trajectories, 20u);
  EXPECT_TRUE(counters.dropped().empty());
  EXPECT_EQ(send(box), 0.0);
  EXPECT_EQ(gateway.stored(20).size(), 20u);
  for (int i = 0; i < 70; ++i) {  // a megabyte each
    put_one(box);
    box.store();
  }
  EXPECT_LE(box.waiting().bytes, std::size_t{64} << 20);
  const auto left = box.waiting().trajectories;
  EXPECT_EQ(counters.dropped().at("disk"), 70 - left);
  EXPECT_GT(left, 55u);
  box.store(true);
  EXPECT_EQ(counters.dropped().at("disk"), 70u) << "after the last time nobody keeps it";
}

TEST_F(Losing, EveryLossAndAFullGatewayAreSaid) {
  configuration.spool_bytes = 3 << 20;
  Outbox& box = outbox((folder.path / "spool").string());
  gateway.full = true;
  for (int i = 0; i < 70; ++i) box.put(ended(layout));
  EXPECT_EQ(counters.troubles().count("memory_full"), 1u);
  box.pack_all();
  EXPECT_GT(send(box), 0.0);
  box.store();
  EXPECT_EQ(counters.troubles().count("spool_full"), 1u);
  EXPECT_EQ(counters.troubles().count("full"), 1u);
  EXPECT_EQ(counters.dropped().size(), 2u);
  const auto left = box.waiting().trajectories;
  EXPECT_GT(left, 0u);
  box.close();
  EXPECT_EQ(box.waiting().trajectories, left) << "it lies in the spool";
}

}  // namespace
}  // namespace penstock
