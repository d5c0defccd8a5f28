#include "cpu/host.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace onchip::cpu {
namespace {

namespace fs = std::filesystem;

/// A folder that looks like a CPU's cache folder.
class CacheFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() / ("onchip_host_test_" + std::string(test->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void add(int index, const std::string& level, const std::string& type, const std::string& size) {
    const fs::path folder = root_ / ("index" + std::to_string(index));
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << "\n";
    std::ofstream(folder / "type") << type << "\n";
    std::ofstream(folder / "size") << size << "\n";
    std::ofstream(folder / "coherency_line_size") << "128\n";
  }
  model::CacheSizes sizes() const { return cache_sizes(read_cache_entries(root_.string())); }

  fs::path root_;
};

TEST(HostCacheSize, ReadsUnits) {
  EXPECT_EQ(parse_cache_size("48K"), 48 << 10);
  EXPECT_EQ(parse_cache_size("32M"), 32 << 20);
  EXPECT_EQ(parse_cache_size("4096"), 4096);
  for (const char* bad : {"", "K", "-4K", "4G", "0K", "12 K", "unknown"}) EXPECT_EQ(parse_cache_size(bad), 0) << bad;
}

TEST_F(CacheFolder, DataCachesOfThreeLevels) {
  add(0, "1", "Data", "48K");
  add(1, "1", "Instruction", "64K");
  add(2, "2", "Unified", "2048K");
  add(3, "3", "Unified", "32768K");
  const model::CacheSizes found = sizes();
  EXPECT_EQ(found.l1_bytes, 48 << 10);
  EXPECT_EQ(found.l2_bytes, 2 << 20);
  EXPECT_EQ(found.l3_bytes, 32 << 20);
  EXPECT_EQ(found.line_bytes, 128);
}

TEST_F(CacheFolder, NoThirdLevel) {
  add(0, "1", "Data", "64K");
  add(1, "2", "Unified", "4M");
  EXPECT_EQ(sizes().l2_bytes, 4 << 20);
  EXPECT_EQ(sizes().l3_bytes, 0);
}

TEST_F(CacheFolder, NonsenseKeepsTheDefaults) {
  const model::CacheSizes defaults;
  EXPECT_EQ(sizes().l1_bytes, defaults.l1_bytes);
  EXPECT_EQ(sizes().l3_bytes, defaults.l3_bytes);
  add(0, "1", "Data", "32K");
  add(1, "2", "Unified", "16K");
  add(2, "three", "Unified", "32M");
  add(3, "4", "Unified", "64M");
  EXPECT_EQ(sizes().l2_bytes, defaults.l2_bytes);
  EXPECT_EQ(sizes().l3_bytes, defaults.l3_bytes);
}

TEST(Host, PresentMachineIsPlausible) {
  const model::CacheSizes& caches = host_caches();
  EXPECT_GE(caches.l1_bytes, 8 << 10);
  EXPECT_GT(caches.l2_bytes, caches.l1_bytes);
  EXPECT_TRUE(caches.l3_bytes == 0 || caches.l3_bytes > caches.l2_bytes);
  EXPECT_FALSE(cpu_name().empty());
  EXPECT_GE(core_count().usable, 1);
  EXPECT_GE(core_count().online, 1);
  EXPECT_GT(memory_bytes(), 64 << 20);
}

}  // namespace
}  // namespace onchip::cpu
