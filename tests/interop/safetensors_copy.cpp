// tests/interop/safetensors_copy.cpp: reads a safetensors file and writes it again: what others wrote and what others
// read, for safetensors_test.py.
//
//   safetensors_copy FROM TO [float32]     floating tensors as they are, or all as float32
#include <cstdio>
#include <deque>
#include <exception>
#include <string>
#include <vector>

#include <qkv/io.h>

namespace {

void copy(const char* from, const char* to, bool widen) {
  const qkv::SafetensorsFile file(from);
  std::deque<qkv::Tensor> copies;
  std::vector<qkv::NamedView> tensors;
  for (const qkv::StoredTensor& tensor : file.tensors()) {
    if (widen && tensor.dtype && qkv::is_floating(*tensor.dtype)) {
      tensors.push_back({tensor.name, copies.emplace_back(file.read(tensor.name, qkv::Dtype::float32))});
    } else if (tensor.dtype && !tensor.is_aligned()) {
      tensors.push_back({tensor.name, copies.emplace_back(file.read(tensor.name))});
    } else {
      tensors.push_back({tensor.name, file.view(tensor.name)});
    }
  }
  qkv::write_safetensors(to, tensors, file.metadata());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    copy(argv[1], argv[2], argc > 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
