// onchip traffic: every machine and pass, its JSON, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/process.hpp"
#include "tools/temporary_folder.hpp"

namespace onchip::test {
namespace {

using Json = nlohmann::json;

Json traffic_json(std::vector<std::string> args) {
  args.insert(args.begin(), {"traffic", "--json"});
  const Outcome outcome = run_onchip(args);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return Json::parse(outcome.out);
}

const Json& main_memory(const Json& part) { return part.at("levels").back(); }

TEST(TrafficCommand, MeasuredShapeOnH200) {
  const std::vector<std::string> shape = {"--seqlen-q", "8192", "--heads", "16",
                                          "--head-dim", "128",  "--dtype", "bf16"};
  std::vector<std::string> args = shape;
  args.insert(args.end(), {"--tile", "128,176", "--machine", "h200"});
  const Json json = traffic_json(args);
  EXPECT_NEAR(main_memory(json["tiled"])["read_bytes"].get<double>(), 100.8e6, 0.03 * 100.8e6);
  EXPECT_NEAR(main_memory(json["standard"])["read_bytes"].get<double>(), 6608e6, 0.05 * 6608e6);
  EXPECT_EQ(main_memory(json["tiled"])["read_bytes_per_token"].get<double>(),
            main_memory(json["tiled"])["read_bytes"].get<double>() / 8192);
  EXPECT_EQ(json["tiled"]["tile"]["tile_n"], 176);
  EXPECT_EQ(json["tiled"]["tile"]["cluster"], 2);
  EXPECT_EQ(json["tiled"]["roofline"]["bound_by"], "products");
  EXPECT_EQ(json["standard"]["roofline"]["bound_by"], "DRAM");
  EXPECT_EQ(json["standard"]["kernels"].size(), 4u);
}

TEST(TrafficCommand, EveryNamedMachineAndPass) {
  for (const char* machine : {"H200", "H100", "A100", "B200", "RTX4090", "RTX5090"})
    for (const char* pass : {"forward", "backward"}) {
      const Json json =
          traffic_json({"--machine", machine, "--pass", pass, "--causal", "--dtype", "f16", "--seqlen-q", "8192"});
      EXPECT_EQ(json["machine"]["name"], machine);
      EXPECT_EQ(json["pass"], pass);
      EXPECT_LT(main_memory(json["tiled"])["read_bytes"].get<double>(),
                main_memory(json["standard"])["read_bytes"].get<double>());
      EXPECT_FALSE(json["tiles"].empty());
    }
}

TEST(TrafficCommand, PresentCpuIsMeasuredAndRunsTheLibrarysTile) {
  const Json json = traffic_json({"--machine", "host", "--seqlen-q", "2048"});
  EXPECT_EQ(json["machine"]["kind"], "cpu");
  EXPECT_GT(json["machine"]["peak_flops"]["f32"].get<double>(), 0);
  const Outcome explained = run_onchip({"explain", "--backend", "cpu", "--seqlen-q", "2048", "--json"});
  const Json tile = Json::parse(explained.out)["tile"];
  EXPECT_EQ(json["tiled"]["tile"]["tile_m"], tile["tile_m"]);
  EXPECT_EQ(json["tiled"]["tile"]["tile_n"], tile["tile_n"]);
}

TEST(TrafficCommand, MachineFromAFile) {
  TemporaryFolder folder;
  const Json h200 = traffic_json({});
  const std::string file = folder.write("mine.json", h200["machine"].dump());
  EXPECT_EQ(traffic_json({"--machine", file}), h200);
  expect_refusal(run_onchip({"traffic", "--machine", folder.write("bad.json", "{\"name\": 3}")}),
                 {"bad.json", "name", "3", "text"});
  expect_refusal(run_onchip({"traffic", "--machine", folder.write("empty.json", "")}), {"empty.json", "JSON"});
}

TEST(TrafficCommand, TextShowsStandardBesideTiled) {
  const Outcome outcome = run_onchip({"traffic"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* part : {"H200", "standard", "tiled", "DRAM", "bytes a token", "softmax", "bound by", "fits"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
}

TEST(TrafficCommand, Refusals) {
  const auto refuse = [](std::vector<std::string> args, const std::vector<std::string>& mentions) {
    args.insert(args.begin(), "traffic");
    expect_refusal(run_onchip(args), mentions);
  };
  refuse({"--machine", "H300"}, {"--machine", "'H300'", "H200", "host"});
  refuse({"--pass", "sideways"}, {"--pass", "'sideways'"});
  refuse({"--heads", "0"}, {"--heads", "0"});
  refuse({"--heads", "6", "--kv-heads", "4"}, {"--kv-heads", "4", "6"});
  refuse({"--kv-heads", "0"}, {"--kv-heads", "0"});
  refuse({"--head-dim", "0"}, {"--head-dim", "0"});
  refuse({"--head-dim-v", "0"}, {"--head-dim-v", "0"});
  refuse({"--tile", "64"}, {"--tile"});
  refuse({"--tile", "64,0"}, {"--tile", "0"});
  refuse({"--cluster", "0"}, {"--cluster", "0"});
  refuse({"--splits", "0"}, {"--splits", "0"});
  refuse({"--score-dtype", "f12"}, {"--score-dtype", "f12"});
  refuse({"--score-dtype", "i8"}, {"--score-dtype", "i8"});
  refuse({"--dtype", "i8"}, {"--dtype", "i8"});
  refuse({"--dtype", "bf16", "--kv-dtype", "f32"}, {"--kv-dtype", "f32", "bf16"});
  refuse({"--window", "-2,0"}, {"--window", "-2"});
}

}  // namespace
}  // namespace onchip::test
