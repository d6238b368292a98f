// apps/inspect.cpp: `qkv inspect`: what is in a file of arrays.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <qkv/io.h>
#include <qkv/plot.h>

#include "arrays.h"
#include "command.h"
#include "element_stats.h"

namespace qkv::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::filesystem::path file;
  bool json = false, stats = false;
};

struct Row {
  StoredTensor tensor;
  std::optional<ElementStats> stats;  // where asked for, and the elements can be read
};

struct Contents {
  std::string format;
  std::map<std::string, std::string> metadata;
  std::vector<Row> rows;
  std::int64_t parameters = 0, bytes = 0;
};

bool is_readable(const StoredTensor& tensor) {
  return tensor.dtype && tensor.shape.size() <= static_cast<std::size_t>(Shape::max_rank);
}

Contents contents_of_safetensors(const Arguments& given) {
  const SafetensorsFile file(given.file);
  Contents contents{.format = "safetensors", .metadata = file.metadata(), .rows = {}};
  for (const StoredTensor& tensor : file.tensors()) {
    Row row{tensor, {}};
    if (given.stats && is_readable(tensor)) {
      row.stats = tensor.is_aligned() ? element_stats(file.view(tensor.name)) : element_stats(file.read(tensor.name));
    }
    contents.rows.push_back(std::move(row));
  }
  return contents;
}

Contents contents_of_npy(const Arguments& given) {
  const Tensor array = read_npy(given.file);
  StoredTensor tensor;
  tensor.name = "(array)";
  tensor.format_dtype = name_of(array.dtype());
  tensor.dtype = array.dtype();
  tensor.shape.assign(array.shape().begin(), array.shape().end());
  tensor.elements = array.elements();
  tensor.bytes = array.elements() * static_cast<std::int64_t>(size_of(array.dtype()));
  Contents contents{.format = "npy", .metadata = {}, .rows = {}};
  contents.rows.push_back({std::move(tensor), {}});
  if (given.stats) contents.rows.front().stats = element_stats(array);
  return contents;
}

Json json_of(const Arguments& given, const Contents& contents) {
  Json tensors = Json::array();
  for (const auto& [tensor, stats] : contents.rows) {
    Json row = {{"name", tensor.name},
                {"dtype", tensor.format_dtype},
                {"shape", tensor.shape},
                {"parameters", tensor.elements},
                {"bytes", tensor.bytes}};
    if (stats) {
      row["min"] = stats->min;
      row["max"] = stats->max;
      row["mean"] = stats->mean;
      row["nan"] = stats->nan;
      row["inf"] = stats->infinite;
    }
    tensors.push_back(std::move(row));
  }
  return {{"file", given.file.string()},       {"format", contents.format}, {"metadata", contents.metadata},
          {"parameters", contents.parameters}, {"bytes", contents.bytes},   {"tensors", std::move(tensors)}};
}

// "32.8 kB"
std::string text_of_bytes(std::int64_t bytes) {
  constexpr const char* units[] = {" B", " kB", " MB", " GB", " TB", " PB", " EB"};
  auto amount = static_cast<double>(bytes);
  int unit = 0;
  for (; amount >= 999.5; amount /= 1000) ++unit;
  return text_of_number(amount, 3) + units[unit];
}

std::string text_of_count(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string text_of_value(const nlohmann::json& value) {
  if (value.is_null()) return "-";
  return value.is_number_float() ? text_of_number(value.get<double>()) : value.dump();
}

void print(const Arguments& given, const Contents& contents) {
  std::vector<TableColumn> columns = {{"name"}, {"dtype"}, {"shape"}, {"size", true}};
  if (given.stats)
    columns.insert(columns.end(), {{"min", true}, {"max", true}, {"mean", true}, {"nan", true}, {"inf", true}});
  std::vector<std::vector<std::string>> rows;
  for (const auto& [tensor, stats] : contents.rows) {
    auto& row = rows.emplace_back();
    row = {tensor.name, std::string(tensor.format_dtype), tensor.shape_text(), text_of_bytes(tensor.bytes)};
    if (!given.stats) continue;
    const ElementStats known = stats.value_or(ElementStats());
    for (const nlohmann::json* value : {&known.min, &known.max, &known.mean}) row.push_back(text_of_value(*value));
    row.push_back(stats ? std::to_string(stats->nan) : "-");
    row.push_back(stats ? std::to_string(stats->infinite) : "-");
  }
  if (!rows.empty()) std::cout << table_text(columns, rows) << "\n";
  if (!contents.metadata.empty()) {
    rows.clear();
    for (const auto& [key, value] : contents.metadata) rows.push_back({key, value});
    std::cout << table_text({{"metadata"}, {""}}, rows) << "\n";
  }
  std::cout << text_of_count(static_cast<std::int64_t>(contents.rows.size()), "tensor") << ", "
            << text_of_count(contents.parameters, "parameter") << ", " << text_of_bytes(contents.bytes) << "\n";
}

int run(const Arguments& given) {
  Contents contents = given.file.extension() == ".npy" ? contents_of_npy(given) : contents_of_safetensors(given);
  for (const Row& row : contents.rows) {
    contents.parameters += row.tensor.elements;
    contents.bytes += row.tensor.bytes;
  }
  if (given.json) {
    // Escaped to ASCII, nothing in a name can reach a terminal.
    std::cout << json_of(given, contents).dump(-1, ' ', true, Json::error_handler_t::replace) << "\n";
  } else {
    print(given, contents);
  }
  return 0;
}

}  // namespace

Command inspect_command(CLI::App& qkv) {
  CLI::App& app = *qkv.add_subcommand("inspect", "What is in a .safetensors or .npy file");
  const auto given = std::make_shared<Arguments>();
  app.add_option("file", given->file, "A .npy file, or a safetensors file of any name")
      ->required()
      ->option_text("FILE");
  app.add_flag("--json", given->json, "JSON instead of a table: exact sizes, and names as they are");
  app.add_flag("--stats", given->stats,
               "Look at the elements: range and mean of the finite ones, how many NaN and Inf");
  app.footer(
      "Lists the tensors in the order of the file: names, dtypes as the format names them, shapes and sizes; then the\n"
      "metadata and the sums. The whole header is checked; without --stats, no element of a safetensors file is read.\n"
      "--stats shows - for elements that qkv does not have, such as F8_E4M3, and where no element is finite.\n\n"
      "Examples:\n  qkv inspect model.safetensors\n  qkv inspect model.safetensors --stats\n"
      "  qkv inspect model.safetensors --json | jq '.tensors[].name'\n  qkv inspect weights.npy --stats");
  return {&app, [given] { return run(*given); }};
}

}  // namespace qkv::apps
