// What LevelDB keeps out of its public headers, and a test of its table format needs: comparators
// and filter policies of a database's tables, files in memory, and the list-of-entries format that
// the C++ programs here and the Rust tests exchange.
//
// Shared by generate.cc beside it and by ../tests/cpp/peer.cc.

#ifndef LEVELTABLE_TESTDATA_LEVELDB_INTERNALS_H_
#define LEVELTABLE_TESTDATA_LEVELDB_INTERNALS_H_

#include <leveldb/comparator.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace leveltable {

[[noreturn]] inline void Die(const std::string& what) { throw std::runtime_error(what); }

inline void Check(const leveldb::Status& status, const std::string& what) {
  if (!status.ok()) Die(what + ": " + status.ToString());
}

inline void Check(bool condition, const std::string& what) {
  if (!condition) Die(what);
}

// ---- Integers -------------------------------------------------------------------------------

inline void PutFixed32(std::string* dst, uint32_t n) {
  for (int shift = 0; shift < 32; shift += 8) dst->push_back(static_cast<char>(n >> shift));
}

inline void PutFixed64(std::string* dst, uint64_t n) {
  for (int shift = 0; shift < 64; shift += 8) dst->push_back(static_cast<char>(n >> shift));
}

inline uint64_t GetFixed(const char* at, int bytes) {
  uint64_t n = 0;
  for (int i = 0; i < bytes; i++) n |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  return n;
}

// ---- Entries --------------------------------------------------------------------------------

using Entry = std::pair<std::string, std::string>;
using Entries = std::vector<Entry>;

inline void PutSized(std::string* dst, const leveldb::Slice& s) {
  PutFixed32(dst, static_cast<uint32_t>(s.size()));
  dst->append(s.data(), s.size());
}

// For each entry: u32 LE key length, key, u32 LE value length, value.
inline std::string EncodeEntries(const Entries& entries) {
  std::string out;
  for (const auto& [key, value] : entries) {
    PutSized(&out, key);
    PutSized(&out, value);
  }
  return out;
}

// Strings of the form u32 LE length, bytes; an even number of them makes a list of entries.
inline std::vector<std::string> DecodeSized(const std::string& in) {
  std::vector<std::string> out;
  for (size_t at = 0; at < in.size();) {
    Check(in.size() - at >= 4, "a length is cut short");
    const size_t size = GetFixed(in.data() + at, 4);
    at += 4;
    Check(in.size() - at >= size, "a string is cut short");
    out.push_back(in.substr(at, size));
    at += size;
  }
  return out;
}

inline Entries DecodeEntries(const std::string& in) {
  std::vector<std::string> strings = DecodeSized(in);
  Check(strings.size() % 2 == 0, "a key without a value");
  Entries out;
  for (size_t i = 0; i < strings.size(); i += 2) {
    out.emplace_back(std::move(strings[i]), std::move(strings[i + 1]));
  }
  return out;
}

// ---- Files ----------------------------------------------------------------------------------

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Check(in.good(), "cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  Check(out.good(), "cannot write " + path);
}

// What a table builder writes to, in memory.
class StringSink : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice& data) override {
    contents.append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

  std::string contents;
};

// What a table is read from, in memory. Refuses what it does not have rather than reading short.
class StringSource : public leveldb::RandomAccessFile {
 public:
  explicit StringSource(std::string contents) : contents_(std::move(contents)) {}

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result,
                       char* /* scratch */) const override {
    if (offset > contents_.size() || n > contents_.size() - offset) {
      return leveldb::Status::IOError("read past the end of the file");
    }
    *result = leveldb::Slice(contents_.data() + offset, n);
    return leveldb::Status::OK();
  }

  uint64_t size() const { return contents_.size(); }

 private:
  const std::string contents_;
};

// ---- Comparators ----------------------------------------------------------------------------

// Descending bytes. Leaves separators and successors alone, as the interface allows.
class ReverseBytewiseComparator : public leveldb::Comparator {
 public:
  int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override {
    return b.compare(a);
  }
  const char* Name() const override { return "leveltable.ReverseBytewiseComparator"; }
  void FindShortestSeparator(std::string*, const leveldb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

// A stored key of a database: user key, then fixed64 `sequence << 8 | type`.
enum ValueType : uint8_t { kDeletion = 0, kValue = 1 };
constexpr uint64_t kMaxSequence = (uint64_t{1} << 56) - 1;

inline std::string InternalKey(const leveldb::Slice& user_key, uint64_t sequence, ValueType type) {
  std::string key = user_key.ToString();
  PutFixed64(&key, sequence << 8 | type);
  return key;
}

inline leveldb::Slice UserKey(const leveldb::Slice& internal_key) {
  if (internal_key.size() < 8) Die("an internal key below 8 bytes");
  return leveldb::Slice(internal_key.data(), internal_key.size() - 8);
}

inline uint64_t Tag(const leveldb::Slice& internal_key) {
  return GetFixed(internal_key.data() + internal_key.size() - 8, 8);
}

// LevelDB's own is not exported from the library. That this one is the same is not a matter of
// trust: generate.cc rebuilds with it every table that a real database wrote, and compares bytes.
class InternalKeyComparator : public leveldb::Comparator {
 public:
  explicit InternalKeyComparator(const leveldb::Comparator* user) : user_(user) {}

  const char* Name() const override { return "leveldb.InternalKeyComparator"; }

  // User keys ascending; of one user key, the newest version first.
  int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override {
    const int order = user_->Compare(UserKey(a), UserKey(b));
    if (order != 0) return order;
    const uint64_t a_tag = Tag(a), b_tag = Tag(b);
    return a_tag > b_tag ? -1 : a_tag < b_tag ? 1 : 0;
  }

  void FindShortestSeparator(std::string* start, const leveldb::Slice& limit) const override {
    std::string shorter = UserKey(*start).ToString();
    user_->FindShortestSeparator(&shorter, UserKey(limit));
    TakeIfShorter(shorter, start);
  }

  void FindShortSuccessor(std::string* key) const override {
    std::string shorter = UserKey(*key).ToString();
    user_->FindShortSuccessor(&shorter);
    TakeIfShorter(shorter, key);
  }

 private:
  // Only a user key that is physically shorter and logically larger replaces the old one; it gets
  // the greatest tag, which sorts before every other of that user key.
  void TakeIfShorter(const std::string& user_key, std::string* key) const {
    const leveldb::Slice old = UserKey(*key);
    if (user_key.size() < old.size() && user_->Compare(old, user_key) < 0) {
      *key = InternalKey(user_key, kMaxSequence, kValue);
    }
  }

  const leveldb::Comparator* const user_;
};

// ---- Filter policies ------------------------------------------------------------------------

// A database's filters hold user keys, under the inner policy's own name.
class InternalFilterPolicy : public leveldb::FilterPolicy {
 public:
  explicit InternalFilterPolicy(const leveldb::FilterPolicy* inner) : inner_(inner) {}

  const char* Name() const override { return inner_->Name(); }

  void CreateFilter(const leveldb::Slice* keys, int n, std::string* dst) const override {
    std::vector<leveldb::Slice> user_keys;
    for (int i = 0; i < n; i++) user_keys.push_back(UserKey(keys[i]));
    inner_->CreateFilter(user_keys.data(), n, dst);
  }

  bool KeyMayMatch(const leveldb::Slice& key, const leveldb::Slice& filter) const override {
    return inner_->KeyMayMatch(UserKey(key), filter);
  }

 private:
  const leveldb::FilterPolicy* const inner_;
};

}  // namespace leveltable

#endif  // LEVELTABLE_TESTDATA_LEVELDB_INTERNALS_H_
