#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "bounded_queue.h"
#include "check.h"

using infer::BoundedQueue;

namespace {

void WaitABit() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

void ItemsComeOutInTheirOrder() {
  BoundedQueue<int> queue(2);
  auto producer = std::async(std::launch::async, [&] {
    for (int i = 0; i < 1000; ++i) {
      queue.Push(i);
    }
    queue.Close();
  });
  int expected = 0;
  while (const auto item = queue.Pop()) {
    CHECK(*item == expected);
    ++expected;
  }
  CHECK(expected == 1000);
}

void AFullQueueHoldsTheProducerBack() {
  BoundedQueue<int> queue(2);
  std::atomic<int> pushed{0};
  auto producer = std::async(std::launch::async, [&] {
    for (int i = 0; i < 5; ++i) {
      queue.Push(i);
      ++pushed;
    }
  });
  while (pushed < 2) {
    std::this_thread::yield();
  }
  WaitABit();
  CHECK(pushed == 2);
  for (int i = 0; i < 5; ++i) {
    CHECK(queue.Pop() == i);
  }
}

void AClosedQueueIsEmptiedAndTakesNothing() {
  BoundedQueue<int> queue(3);
  CHECK(queue.Push(7));
  CHECK(queue.Push(8));
  queue.Close();
  CHECK(!queue.Push(9));
  CHECK(queue.Pop() == 7);
  CHECK(queue.Pop() == 8);
  CHECK(!queue.Pop());
}

void ClosingWakesWhoWaits() {
  BoundedQueue<int> full(1);
  BoundedQueue<int> empty(1);
  full.Push(1);
  auto producer = std::async(std::launch::async, [&] { return full.Push(2); });
  auto consumer = std::async(std::launch::async, [&] { return empty.Pop().has_value(); });
  WaitABit();
  full.Close();
  empty.Close();
  CHECK(!producer.get());
  CHECK(!consumer.get());
}

void ItemsAreMovedNotCopied() {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  queue.Push(std::make_unique<int>(5));
  CHECK(**queue.Pop() == 5);
}

}  // namespace

int main() {
  ItemsComeOutInTheirOrder();
  AFullQueueHoldsTheProducerBack();
  AClosedQueueIsEmptiedAndTakesNothing();
  ClosingWakesWhoWaits();
  ItemsAreMovedNotCopied();
  return failures == 0 ? 0 : 1;
}
