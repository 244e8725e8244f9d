// The work of examples/lsm.rs on a database of C++ LevelDB.
//
//     lsm DIRECTORY ENTRIES
//
// Prints nanoseconds for each of readrandom, readmissing and readseq, and a sum to compare.

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void Check(const leveldb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// Entry number `i` in the order of writing. The multiplier has no factor in common with a power of ten.
std::string Key(uint64_t i, uint64_t entries, const char* end) {
  char key[32];
  std::snprintf(key, sizeof key, "%016llu%s",
                static_cast<unsigned long long>(i * 7919 % entries), end);
  return key;
}

double Nanoseconds(std::chrono::steady_clock::time_point start, uint64_t n) {
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(n);
}

}  // namespace

int main(int, char** argv) {
  const uint64_t entries = std::strtoull(argv[2], nullptr, 10);
  const std::unique_ptr<const leveldb::FilterPolicy> filter(leveldb::NewBloomFilterPolicy(12));
  const std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(32 << 20));
  leveldb::Options options;
  options.create_if_missing = true;
  options.filter_policy = filter.get();
  options.block_cache = cache.get();
  leveldb::DB* opened = nullptr;
  Check(leveldb::DB::Open(options, argv[1], &opened));
  const std::unique_ptr<leveldb::DB> db(opened);
  leveldb::WriteOptions sync;
  sync.sync = true;
  for (uint64_t i = 0; i < entries;) {
    leveldb::WriteBatch batch;
    for (const uint64_t end = i + 1000; i < end; i++) {
      batch.Put(Key(i, entries, ""), std::string(100, static_cast<char>('a' + i % 26)));
    }
    Check(db->Write(sync, &batch));
  }
  db->CompactRange(nullptr, nullptr);

  uint64_t sum = 0;
  std::string value;
  double times[3];
  auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < entries; i++) {
    Check(db->Get(leveldb::ReadOptions(), Key(i * 31, entries, ""), &value));
    sum += static_cast<uint8_t>(value[0]);
  }
  times[0] = Nanoseconds(start, entries);
  start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < entries; i++) {
    if (db->Get(leveldb::ReadOptions(), Key(i * 31, entries, "."), &value).ok()) return 1;
  }
  times[1] = Nanoseconds(start, entries);
  start = std::chrono::steady_clock::now();
  const std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) sum += static_cast<uint8_t>(it->value()[0]);
  Check(it->status());
  times[2] = Nanoseconds(start, entries);
  std::printf("%.1f %.1f %.1f %llu\n", times[0], times[1], times[2],
              static_cast<unsigned long long>(sum));
}
