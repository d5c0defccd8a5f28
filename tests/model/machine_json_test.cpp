#include "model/machine_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace onchip::model {
namespace {

using Json = nlohmann::ordered_json;

Json valid() {
  return Json::parse(R"({
    "name": "mine", "kind": "gpu", "units": 4, "clock_hz": 1e9,
    "levels": [{"name": "near", "capacity_bytes": 1000, "bandwidth": 10},
               {"name": "cache", "capacity_bytes": 5000, "shared": true},
               {"name": "memory", "shared": true, "bandwidth": 1}],
    "peak_flops": {"f32": 7}})");
}

std::string fault(const Json& json) {
  Machine machine;
  machine.name = "untouched";
  const Status status = machine_from_json(json.dump(), machine);
  EXPECT_FALSE(status.ok()) << json;
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(machine.name, "untouched");
  return status.message();
}

template <typename Change>
std::string fault_after(Change&& change) {
  Json json = valid();
  change(json);
  return fault(json);
}

TEST(MachineJson, KnownMachinesSurviveARoundTrip) {
  for (const Machine& machine : known_machines()) {
    Machine again;
    const Status status = machine_from_json(machine_to_json(machine), again);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(machine_to_json(again), machine_to_json(machine));
  }
}

TEST(MachineJson, OptionalFieldsKeepTheirDefaults) {
  Machine machine;
  ASSERT_TRUE(machine_from_json(valid().dump(), machine).ok());
  EXPECT_EQ(machine.name, "mine");
  EXPECT_EQ(machine.units, 4);
  EXPECT_TRUE(machine.has_shared_cache());
  EXPECT_EQ(machine.peak_flops(DType::bf16), 7);
  EXPECT_EQ(machine.effective_share, 1);
  EXPECT_EQ(machine.block.queries, Machine{}.block.queries);
}

TEST(MachineJson, FaultsNameTheField) {
  EXPECT_EQ(fault_after([](Json& j) { j.erase("name"); }), "machine: name is missing");
  EXPECT_EQ(fault_after([](Json& j) { j["name"] = 3; }), "machine: name is 3, expected a text");
  EXPECT_EQ(fault_after([](Json& j) { j["kind"] = "tpu"; }), "machine: kind is 'tpu', expected gpu or cpu");
  EXPECT_EQ(fault_after([](Json& j) { j["units"] = 0; }), "machine: units is 0, expected a number of at least 1");
  EXPECT_EQ(fault_after([](Json& j) { j["clock_hz"] = -1; }), "machine: clock_hz is -1, expected a number, 0 or more");
  EXPECT_EQ(fault_after([](Json& j) { j["clock_hz"] = "fast"; }),
            "machine: clock_hz is \"fast\", expected a number, 0 or more");
  EXPECT_EQ(fault_after([](Json& j) { j["bandwith"] = 1; }), "machine: unknown field 'bandwith'");
  EXPECT_EQ(fault_after([](Json& j) { j["levels"][1]["size"] = 1; }), "machine: unknown field 'levels[1].size'");
  EXPECT_EQ(fault_after([](Json& j) { j["levels"][0].erase("name"); }), "machine: levels[0].name is missing");
  EXPECT_EQ(fault_after([](Json& j) { j["levels"][0]["bandwidth"] = nullptr; }),
            "machine: levels[0].bandwidth is null, expected a number, 0 or more");
  EXPECT_EQ(fault_after([](Json& j) { j["levels"][0] = 5; }), "machine: levels[0] is 5, expected an object");
  EXPECT_EQ(fault_after([](Json& j) { j["levels"] = "many"; }), "machine: levels is \"many\", expected a list");
  EXPECT_EQ(fault_after([](Json& j) { j["peak_flops"] = 7; }), "machine: peak_flops is 7, expected an object");
  EXPECT_EQ(fault_after([](Json& j) { j["peak_flops"]["fp4"] = 7; }), "machine: unknown field 'peak_flops.fp4'");
  EXPECT_EQ(fault_after([](Json& j) { j["effective_share"] = 1.5; }),
            "machine: effective_share is 1.5, expected 0 to 1");
  EXPECT_EQ(fault_after([](Json& j) { j["write_allocate"] = 1; }),
            "machine: write_allocate is 1, expected true or false");
  EXPECT_EQ(fault_after([](Json& j) {
              j["register_block"] = {{"queries", 0}};
            }),
            "machine: register_block.queries is 0, expected a number of at least 1");
  EXPECT_EQ(fault_after([](Json& j) {
              j["gemm_tile"] = {{"tile_n", 0}};
            }),
            "machine: gemm_tile.tile_n is 0, expected a number of at least 1");
}

TEST(MachineJson, LevelsMustBeInOrder) {
  EXPECT_NE(fault_after([](Json& j) { j["levels"] = Json::array(); }).find("levels has 0 entries"), std::string::npos);
  EXPECT_NE(fault_after([](Json& j) { j["levels"][0]["shared"] = true; }).find("levels[0] ('near') is shared"),
            std::string::npos);
  EXPECT_NE(fault_after([](Json& j) { j["levels"][2]["shared"] = false; }).find("levels[2] ('memory') is not shared"),
            std::string::npos);
  EXPECT_NE(fault_after([](Json& j) { j["levels"][1].erase("capacity_bytes"); }).find("levels[1].capacity_bytes is 0"),
            std::string::npos);
}

TEST(MachineJson, WhatIsNoObject) {
  Machine machine;
  for (const char* text : {"", "{", "nonsense", "\xff\xfe"})
    EXPECT_EQ(machine_from_json(text, machine).message(),
              "machine: not JSON, expected an object that describes a machine");
  EXPECT_EQ(machine_from_json("[1, 2]", machine).message(), "machine: [1,2], expected an object");
  EXPECT_EQ(machine_from_json("3", machine).message(), "machine: 3, expected an object");
}

}  // namespace
}  // namespace onchip::model
