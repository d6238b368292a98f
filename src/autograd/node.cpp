// autograd/node.cpp: nodes are numbered, counted, and freed one after the other.
#include "autograd/node.h"

#include <atomic>
#include <utility>

namespace qkv::tape {
namespace {

std::atomic<std::uint64_t> last_number = 0;
std::atomic<std::int64_t> nodes_alive = 0;

// Where ~Node puts records while another one, further up on this thread's stack, is freeing records.
thread_local Record** waiting = nullptr;

}  // namespace

Node::Node(const char* name_, std::vector<Output> outputs_)
    : name(name_), number(++last_number), outputs(std::move(outputs_)) {
  ++nodes_alive;
}

// A record holds the nodes before it, they hold theirs, and so on: a chain of a million nodes freed in the natural way
// would be a million calls deep. So the first one frees them all, and the others only hand it their records.
Node::~Node() {
  --nodes_alive;
  if (!record) return;
  if (waiting != nullptr) {
    record->next = std::exchange(*waiting, record.get());
    static_cast<void>(record.release());
    return;
  }
  Record* list = record.release();
  waiting = &list;
  while (list != nullptr) {
    const std::unique_ptr<Record> first(list);
    list = first->next;
  }
  waiting = nullptr;
}

std::int64_t Node::alive() { return nodes_alive; }

}  // namespace qkv::tape
