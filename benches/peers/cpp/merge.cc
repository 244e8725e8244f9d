// Walks a table, and a merge of others by LevelDB's own merging iterator; see examples/merge.rs.
//
//     merge ONE TABLE..
//
// Prints two times in milliseconds, each the best of seven.

#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/env.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace leveldb {

// Internal to the library, and exported by its static form only.
Iterator* NewMergingIterator(const Comparator* comparator, Iterator** children, int n);

}  // namespace leveldb

namespace {

leveldb::Table* Open(const char* path, const leveldb::Options& options) {
  leveldb::Env* env = leveldb::Env::Default();
  leveldb::RandomAccessFile* file;
  leveldb::Table* table;
  uint64_t size;
  if (!env->NewRandomAccessFile(path, &file).ok() || !env->GetFileSize(path, &size).ok() ||
      !leveldb::Table::Open(options, file, size, &table).ok()) {
    throw std::runtime_error(path);
  }
  return table;
}

double Walk(leveldb::Iterator* owned, uint64_t* sum) {
  const std::unique_ptr<leveldb::Iterator> it(owned);
  const auto start = std::chrono::steady_clock::now();
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    *sum += it->value().size() + static_cast<uint8_t>(it->key()[7]);
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  if (!it->status().ok()) throw std::runtime_error(it->status().ToString());
  return time.count();
}

}  // namespace

int main(int argc, char** argv) {
  leveldb::Options options;
  options.block_cache = leveldb::NewLRUCache(512 << 20);
  std::vector<leveldb::Table*> tables;
  for (int i = 1; i < argc; i++) tables.push_back(Open(argv[i], options));
  double walk = 1e9, merge = 1e9;
  uint64_t sum = 0;
  for (int round = 0; round < 7; round++) {
    walk = std::min(walk, Walk(tables[0]->NewIterator(leveldb::ReadOptions()), &sum));
    std::vector<leveldb::Iterator*> inputs;
    for (size_t i = 1; i < tables.size(); i++) {
      inputs.push_back(tables[i]->NewIterator(leveldb::ReadOptions()));
    }
    leveldb::Iterator* merged = leveldb::NewMergingIterator(
        leveldb::BytewiseComparator(), inputs.data(), static_cast<int>(inputs.size()));
    merge = std::min(merge, Walk(merged, &sum));
  }
  std::printf("%.2f %.2f %llu\n", walk, merge, static_cast<unsigned long long>(sum / 14));
}
