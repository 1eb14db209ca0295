#include "cleave/data/sources.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cleave/data/fashion_mnist.h"
#include "cleave/error.h"

namespace cleave {
namespace {

TEST(Sources, every_source_of_the_table_loads) {
  for (const DataSource& source : data_sources()) {
    if (source.name == "fashion-mnist" &&
        !std::filesystem::exists(kFashionMnistFolder)) {
      continue;
    }
    const TrainAndTest data = load_data(source.name, {.limit = 100});
    EXPECT_GT(data.train->size(), 0) << source.name;
    EXPECT_GT(data.test->size(), 0) << source.name;
    EXPECT_EQ(data.train->classes(), data.test->classes()) << source.name;
    EXPECT_FALSE(data.train->description().empty()) << source.name;
  }
}

TEST(Sources, an_unknown_name_is_answered_with_the_known_ones) {
  try {
    load_data("imagenet");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'imagenet'"), std::string::npos) << text;
    EXPECT_NE(text.find("synthetic, fashion-mnist"), std::string::npos) << text;
  }
}

TEST(Sources, the_folder_of_a_source_can_be_named) {
  try {
    load_data("fashion-mnist", {.folder = "/nowhere"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.problem().find("/nowhere"), std::string::npos);
  }
}

}  // namespace
}  // namespace cleave
