#include "batch_loader.h"

#include <stdexcept>
#include <utility>

namespace image_classifier {

BatchLoader::BatchLoader(const PictureSet& set, const LoaderOptions& options)
    : set_(set), options_(options) {}

BatchLoader::~BatchLoader() { stop(); }

void BatchLoader::start(std::uint64_t epoch, std::vector<Chosen> batches) {
  stop();
  epoch_ = epoch;
  batches_ = std::move(batches);
  begun_ = 0;
  handed_out_ = 0;
  made_.clear();
  is_stopping_ = false;
  for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { work(); });
}

Batch BatchLoader::next() {
  if (handed_out_ == batches_.size()) throw std::logic_error("there is no batch left");
  Made next;
  if (threads_.empty()) {
    next = make(handed_out_++);
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return made_.count(handed_out_) > 0; });
    next = std::move(made_.extract(handed_out_++).mapped());
    changed_.notify_all();
  }
  if (next.error != nullptr) std::rethrow_exception(next.error);
  return next.batch;
}

void BatchLoader::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void BatchLoader::work() {
  const auto most = static_cast<std::size_t>(options_.workers * options_.ahead);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return is_stopping_ || begun_ == batches_.size() || begun_ < handed_out_ + most;
    });
    if (is_stopping_ || begun_ == batches_.size()) return;
    const std::size_t number = begun_++;
    lock.unlock();
    Made made = make(number);
    lock.lock();
    made_.emplace(number, std::move(made));
    changed_.notify_all();
  }
}

BatchLoader::Made BatchLoader::make(std::size_t number) const {
  Made made;
  try {
    made.batch = set_.batch(batches_[number], epoch_);
    if (options_.memory == BatchMemory::kPinned) {
      made.batch.pictures = made.batch.pictures.pin_memory();
      made.batch.labels = made.batch.labels.pin_memory();
    }
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

}  // namespace image_classifier
