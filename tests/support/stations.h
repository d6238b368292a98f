// support/stations.h: every score with every weighing, for tests that walk them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/case.h"

namespace qkv::test {

struct Stations {
  Score::Kind score;
  Weigh weigh;
};

inline std::vector<Stations> all_stations() {
  std::vector<Stations> all;
  for (const Score::Kind score : all_score_kinds) {
    for (const Weigh& weigh : all_weighings()) all.push_back({score, weigh});
  }
  return all;
}

inline std::string name_of_stations(const testing::TestParamInfo<Stations>& info) {
  return std::string(score_name(info.param.score)) + "_and_" + weigh_name(info.param.weigh);
}

inline Case with_stations(const Stations& stations, Case c) {
  c.score = stations.score;
  c.weigh = stations.weigh;
  return c;
}

}  // namespace qkv::test
