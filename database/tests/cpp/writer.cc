// The writer of databases for the tests of leveltable-database: C++ LevelDB, told what to do by lines on standard input.
// Each command is answered by a line, "ok" or an error, when it is done. Keys and values are in hexadecimal, "-" if empty.
//
//   open DIR BUFFER FILE BLOCK SNAPPY BLOOM REUSE ORDER     sizes in bytes, bits per key, the others 0 or 1; order 1 is reverse, 2
//                                                           bytewise by the name of idb_cmp1
//   mortal                                                  what is opened next can die
//   die                                                     end the process at the next table that a compaction has written
//   batch SYNC  put KEY VALUE | delete KEY ..               words on the same line
//   snapshot | release                                      hold one, or let the oldest go
//   compact                                                 all keys
//   compact_between FROM TO                                 as if the keys were all of the database's: with explicit bounds, LevelDB
//                                                           compacts the levels that have tables there, and not level 0 alone
//   check                                                   every entry of the iterator by Get as well; "ok" and the number of entries
//   dump FILE                                               every entry: u32 LE length of key, key, u32 LE length of value, value
//   scan | get COUNT                                        walk all entries, or look up as many of COUNT keys, user/00000000 and
//                                                           so on, at random; "ok", nanoseconds, bytes of what was found
//   repair DIR
//   close

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "leveldb/comparator.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

namespace {

class Reverse : public leveldb::Comparator {
 public:
  int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override { return b.compare(a); }
  const char* Name() const override { return "test.Reverse"; }
  void FindShortestSeparator(std::string*, const leveldb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

class NamedIndexedDb : public leveldb::Comparator {
 public:
  int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override { return a.compare(b); }
  const char* Name() const override { return "idb_cmp1"; }
  void FindShortestSeparator(std::string*, const leveldb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

// Writes LOG as LevelDB does, and ends the process in the middle of a compaction, as `kill -9` would.
class MortalLogger : public leveldb::Logger {
 public:
  explicit MortalLogger(const std::string& dir) {
    leveldb::Env::Default()->CreateDir(dir);
    leveldb::Env::Default()->NewLogger(dir + "/LOG", &log_);
  }
  ~MortalLogger() override { delete log_; }
  void Logv(const char* format, std::va_list arguments) override {
    log_->Logv(format, arguments);
    // A line for each output: the compaction is not over.
    if (dies && std::strncmp(format, "Generated table", 15) == 0) _exit(1);
  }
  std::atomic<bool> dies{false};

 private:
  leveldb::Logger* log_ = nullptr;
};

std::string Unhex(const std::string& text) {
  std::string bytes;
  if (text == "-") return bytes;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes.push_back(static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1])));
  return bytes;
}

void PutString(std::ofstream& out, const leveldb::Slice& bytes) {
  for (int i = 0; i < 4; i++) out.put(static_cast<char>(bytes.size() >> (8 * i)));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Writer {
  Reverse reverse;
  NamedIndexedDb indexed_db;
  std::unique_ptr<const leveldb::FilterPolicy> policy;
  bool is_mortal = false;
  std::unique_ptr<MortalLogger> logger;
  std::unique_ptr<leveldb::DB> db;
  std::deque<const leveldb::Snapshot*> snapshots;
  std::string figures;  // after "ok"

  leveldb::Options OptionsFrom(std::istringstream& line) {
    leveldb::Options options;
    int snappy = 0, bloom = 0, reuse = 0, reversed = 0;
    line >> options.write_buffer_size >> options.max_file_size >> options.block_size >> snappy >> bloom >> reuse >> reversed;
    options.create_if_missing = true;
    options.paranoid_checks = false;
    options.compression = snappy ? leveldb::kSnappyCompression : leveldb::kNoCompression;
    options.reuse_logs = reuse != 0;
    if (reversed == 1) options.comparator = &reverse;
    if (reversed == 2) options.comparator = &indexed_db;
    policy.reset(bloom ? leveldb::NewBloomFilterPolicy(bloom) : nullptr);
    options.filter_policy = policy.get();
    return options;
  }

  // Walks all entries. Returns the bytes of keys and values.
  size_t Scan() {
    size_t bytes = 0;
    std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
    for (it->SeekToFirst(); it->Valid(); it->Next()) bytes += it->key().size() + it->value().size();
    return bytes;
  }

  // Looks up as many keys as there are, at random (xorshift32 from 1). Returns the bytes of values.
  size_t Get(uint32_t count) {
    size_t bytes = 0;
    uint32_t random = 1;
    char key[32];
    std::string value;
    for (uint32_t i = 0; i < count; i++) {
      random ^= random << 13;
      random ^= random >> 17;
      random ^= random << 5;
      const int length = snprintf(key, sizeof key, "user/%08u", static_cast<unsigned>(random % count));
      if (db->Get(leveldb::ReadOptions(), leveldb::Slice(key, length), &value).ok()) bytes += value.size();
    }
    return bytes;
  }

  void Close() {
    for (const auto* snapshot : snapshots) db->ReleaseSnapshot(snapshot);
    snapshots.clear();
    db.reset();
  }

  leveldb::Status Run(std::istringstream& line) {
    std::string command;
    line >> command;
    if (command == "open") {
      std::string dir;
      line >> dir;
      Close();
      leveldb::DB* opened = nullptr;
      leveldb::Options options = OptionsFrom(line);
      if (is_mortal) logger.reset(new MortalLogger(dir));
      if (is_mortal) options.info_log = logger.get();
      is_mortal = false;
      leveldb::Status status = leveldb::DB::Open(options, dir, &opened);
      db.reset(opened);
      return status;
    }
    if (command == "batch") {
      leveldb::WriteOptions options;
      leveldb::WriteBatch batch;
      int sync = 0;
      std::string what, key, value;
      line >> sync;
      options.sync = sync != 0;
      while (line >> what >> key) {
        if (what == "put") {
          line >> value;
          batch.Put(Unhex(key), Unhex(value));
        } else {
          batch.Delete(Unhex(key));
        }
      }
      return db->Write(options, &batch);
    }
    if (command == "mortal") {
      is_mortal = true;
    } else if (command == "die" && logger) {
      logger->dies = true;
    } else if (command == "snapshot") {
      snapshots.push_back(db->GetSnapshot());
    } else if (command == "release" && !snapshots.empty()) {
      db->ReleaseSnapshot(snapshots.front());
      snapshots.pop_front();
    } else if (command == "compact") {
      db->CompactRange(nullptr, nullptr);
    } else if (command == "compact_between") {
      std::string from, to;
      line >> from >> to;
      from = Unhex(from);
      to = Unhex(to);
      const leveldb::Slice begin(from), end(to);
      const auto start = std::chrono::steady_clock::now();
      db->CompactRange(&begin, &end);
      const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
      figures = " " + std::to_string(took.count());
    } else if (command == "check") {
      std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
      std::string value;
      uint64_t count = 0;
      for (it->SeekToFirst(); it->Valid(); it->Next(), count++) {
        leveldb::Status status = db->Get(leveldb::ReadOptions(), it->key(), &value);
        if (!status.ok()) return status;
        if (leveldb::Slice(value) != it->value()) return leveldb::Status::Corruption("Get differs from the iterator", it->key());
      }
      figures = " " + std::to_string(count);
      return it->status();
    } else if (command == "dump") {
      std::string path;
      line >> path;
      std::ofstream out(path, std::ios::binary);
      std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        PutString(out, it->key());
        PutString(out, it->value());
      }
      return it->status();
    } else if (command == "scan" || command == "get") {
      uint32_t count = 0;
      line >> count;
      const auto begin = std::chrono::steady_clock::now();
      const size_t bytes = command == "scan" ? Scan() : Get(count);
      const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
      figures = " " + std::to_string(took.count()) + " " + std::to_string(bytes);
    } else if (command == "repair") {
      std::string dir;
      line >> dir;
      Close();
      return leveldb::RepairDB(dir, leveldb::Options());
    } else if (command == "close") {
      Close();
    }
    return leveldb::Status::OK();
  }
};

}  // namespace

int main() {
  Writer writer;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    writer.figures.clear();
    leveldb::Status status = writer.Run(words);
    std::cout << (status.ok() ? "ok" + writer.figures : status.ToString()) << std::endl;
  }
  writer.Close();
}
