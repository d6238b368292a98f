// nn/state_dict.cpp: parameters in files.
#include <algorithm>
#include <cstring>
#include <set>

#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "base/printable.h"

namespace qkv::nn {
namespace {

constexpr std::size_t listed_faults = 16;  // what is said of a file of another model need not be all

// What of the file does not fit the parameters, one text each.
std::vector<std::string> faults_of(const Parameters& parameters, const SafetensorsFile& file,
                                   const std::string& prefix) {
  std::vector<std::string> faults;
  std::set<std::string> asked;
  for (const NamedParameter& named : parameters) {
    const std::string name = prefix + named.name;
    if (!asked.insert(name).second) throw OptionError(message("load: the name ", printable(name), " comes twice"));
    if (!file.contains(name)) {
      faults.push_back(message(printable(name), " is missing"));
      continue;
    }
    const StoredTensor& stored = file.tensor(name);
    const Shape& shape = named.parameter.shape();
    if (!std::equal(stored.shape.begin(), stored.shape.end(), shape.begin(), shape.end())) {
      faults.push_back(message(printable(name), " is ", stored.shape_text(), " and should be ", shape.text()));
    } else if (!stored.dtype || !is_floating(*stored.dtype)) {
      faults.push_back(message(printable(name), " is ", std::string(stored.format_dtype), " and not floating"));
    }
  }
  for (const StoredTensor& stored : file.tensors()) {
    if (stored.name.starts_with(prefix) && asked.count(stored.name) == 0) {
      faults.push_back(message(printable(stored.name), " is extra: no parameter is called so"));
    }
  }
  return faults;
}

}  // namespace

void load(const Parameters& parameters, const SafetensorsFile& file, const std::string& prefix) {
  for (const NamedParameter& named : parameters) named.parameter.mutable_value();  // throws for what is no parameter
  const std::vector<std::string> faults = faults_of(parameters, file, prefix);
  if (!faults.empty()) {
    std::string text = message(printable(file.path().string()), " does not fit the parameters: ");
    for (std::size_t i = 0; i < std::min(faults.size(), listed_faults); ++i) text += (i == 0 ? "" : "; ") + faults[i];
    if (faults.size() > listed_faults) text += message("; and ", faults.size() - listed_faults, " more");
    throw FileError(text);
  }
  // All is read, and converted, before anything is changed.
  std::vector<Tensor> read;
  for (const NamedParameter& named : parameters) {
    read.push_back(file.read(prefix + named.name, named.parameter.dtype()));
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(read[i].elements()) * size_of(read[i].dtype());
    if (bytes > 0) std::memcpy(parameters[i].parameter.mutable_value().data(), read[i].view().data(), bytes);
  }
}

void save(const std::filesystem::path& path, const Parameters& parameters,
          const std::map<std::string, std::string>& metadata) {
  std::vector<NamedView> views;
  for (const NamedParameter& named : parameters) views.push_back({named.name, named.parameter.value()});
  write_safetensors(path, views, metadata);
}

}  // namespace qkv::nn
