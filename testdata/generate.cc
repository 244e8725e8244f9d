// Makes the golden tables of this directory with C++ LevelDB: see README.md.
//
//   generate DIRECTORY
//
// Deterministic: the same LevelDB and Snappy give the same bytes on every run.

#include <leveldb/db.h>
#include <leveldb/helpers/memenv.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>
#include <leveldb/write_batch.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "leveldb_internals.h"

namespace leveltable {
namespace {

// ---- Text forms -----------------------------------------------------------------------------

std::string Hex(const leveldb::Slice& s) {
  static const char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < s.size(); i++) {
    const uint8_t byte = static_cast<uint8_t>(s[i]);
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

std::string Decimal(uint64_t n, size_t width) {
  std::string digits = std::to_string(n);
  return digits.size() >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

// ---- The Bloom filter of the older name -----------------------------------------------------

// `leveldb.BuiltinBloomFilter`, without the 2, names two filters that differ in one respect:
// whether the hash adds the last one to three bytes of a key as signed numbers (LevelDB before 1.18
// where `char` is signed, such as x86) or unsigned (goleveldb; newer LevelDB under the newer name).
class OldNameBloomPolicy : public leveldb::FilterPolicy {
 public:
  OldNameBloomPolicy(int bits_per_key, bool signed_tail)
      : bits_per_key_(bits_per_key), signed_tail_(signed_tail) {}

  const char* Name() const override { return "leveldb.BuiltinBloomFilter"; }

  void CreateFilter(const leveldb::Slice* keys, int n, std::string* dst) const override {
    const size_t bytes = (std::max<size_t>(64, size_t(n) * bits_per_key_) + 7) / 8;
    std::string array(bytes, '\0');
    for (int i = 0; i < n; i++) {
      ForEachProbe(keys[i], Probes(), bytes * 8, [&](uint32_t bit) {
        array[bit / 8] |= static_cast<char>(1 << (bit % 8));
        return true;
      });
    }
    dst->append(array);
    dst->push_back(static_cast<char>(Probes()));
  }

  bool KeyMayMatch(const leveldb::Slice& key, const leveldb::Slice& filter) const override {
    if (filter.size() < 2) return false;
    const uint8_t probes = static_cast<uint8_t>(filter[filter.size() - 1]);
    if (probes > 30) return true;
    return ForEachProbe(key, probes, (filter.size() - 1) * 8, [&](uint32_t bit) {
      return (filter[bit / 8] >> (bit % 8) & 1) != 0;
    });
  }

 private:
  int Probes() const { return std::clamp(static_cast<int>(bits_per_key_ * 0.69), 1, 30); }

  // Until `visit` answers false; whether it never did.
  bool ForEachProbe(const leveldb::Slice& key, int probes, size_t bits,
                    const std::function<bool(uint32_t)>& visit) const {
    uint32_t h = Hash(key);
    const uint32_t delta = (h >> 17) | (h << 15);
    for (int i = 0; i < probes; i++, h += delta) {
      if (!visit(static_cast<uint32_t>(h % bits))) return false;
    }
    return true;
  }

  uint32_t Hash(const leveldb::Slice& key) const {
    const uint32_t m = 0xc6a4a793;
    uint32_t h = 0xbc9f1d34 ^ (static_cast<uint32_t>(key.size()) * m);
    size_t at = 0;
    for (; at + 4 <= key.size(); at += 4) {
      h += static_cast<uint32_t>(GetFixed(key.data() + at, 4));
      h *= m;
      h ^= h >> 16;
    }
    if (at == key.size()) return h;
    for (size_t i = 0; at + i < key.size(); i++) {
      // A negative number wraps to a uint32_t with all its upper bits set: that is the difference.
      const uint32_t tail = signed_tail_
                                ? static_cast<uint32_t>(static_cast<int8_t>(key[at + i]))
                                : static_cast<uint8_t>(key[at + i]);
      h += tail << (8 * i);
    }
    h *= m;
    return h ^ (h >> 24);
  }

  const int bits_per_key_;
  const bool signed_tail_;
};

// ---- What the tables hold -------------------------------------------------------------------

// The engine's output is fixed by the C++ standard; that of the standard's distributions is not.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Below(uint64_t n) { return engine_() % n; }

  std::string Bytes(size_t size) {
    std::string out;
    for (size_t i = 0; i < size; i++) out.push_back(static_cast<char>(Below(256)));
    return out;
  }

  // Text that Snappy halves or better.
  std::string Text(size_t size) {
    static const char* const kWords[] = {"block ", "filter ", "footer ", "index ",
                                         "key ",   "restart ", "table ", "value "};
    std::string out;
    while (out.size() < size) out += kWords[Below(8)];
    out.resize(size);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

// Keys as applications make them: long shared prefixes.
Entries Words() {
  Random random(1);
  Entries entries;
  for (int user = 0; user < 100; user++) {
    const std::string prefix = "user/" + Decimal(user * 37, 6) + "/";
    entries.emplace_back(prefix + "email", "someone" + std::to_string(user) + "@example.org");
    entries.emplace_back(prefix + "name", random.Text(5 + random.Below(40)));
    entries.emplace_back(prefix + "score", std::to_string(random.Below(100000)));
  }
  return entries;
}

// Keys of one length that differ in a few digits: the weak spot of LevelDB's filter hash.
Entries Decimals() {
  Random random(2);
  Entries entries;
  for (int i = 0; i < 500; i++) {
    entries.emplace_back(Decimal(1000 + 7 * i, 16), random.Text(8 + random.Below(16)));
  }
  return entries;
}

// Keys and values that nothing can be assumed of. Snappy gains too little on their blocks, which
// are then stored as they are. Key lengths of every remainder modulo four, and high bytes: the tail
// of the Bloom hash.
Entries RandomBytes() {
  Random random(3);
  std::map<std::string, std::string> sorted;
  while (sorted.size() < 400) {
    std::string key = random.Bytes(1 + random.Below(12));
    sorted[key] = random.Bytes(random.Below(60));
  }
  return Entries(sorted.begin(), sorted.end());
}

// Every key a prefix of the next: no separator can be shortened.
Entries Prefixes() {
  Random random(4);
  Entries entries;
  for (int i = 1; i <= 160; i++) {
    entries.emplace_back(std::string(i, 'a'), random.Text(i % 3 == 0 ? 0 : i % 25));
  }
  return entries;
}

// Every string of up to four bytes out of four, the extremes and their neighbours, the empty one
// included; and runs. In blocks of one entry they ask every question about separators.
Entries Extremes() {
  std::set<std::string> keys = {""};
  std::vector<std::string> longest = {""};
  for (int size = 1; size <= 4; size++) {
    std::vector<std::string> longer;
    for (const std::string& key : longest) {
      for (const char byte : {'\x00', '\x01', '\xfe', '\xff'}) longer.push_back(key + byte);
    }
    keys.insert(longer.begin(), longer.end());
    longest = longer;
  }
  for (int size = 5; size <= 30; size++) {
    keys.insert(std::string(size, '\x00'));
    keys.insert(std::string(size, '\xff'));
  }
  Entries entries;
  for (const std::string& key : keys) entries.emplace_back(key, Hex(key).substr(0, 9));
  return entries;
}

Entries EmptyValues() {
  Entries entries;
  for (int i = 0; i < 200; i++) entries.emplace_back("member-" + Decimal(i * i, 6), "");
  return entries;
}

// Small values around two large ones, one that compresses and one that does not. The file offsets
// that a large block skips leave empty filters behind.
Entries Large() {
  Random random(5);
  Entries entries;
  for (int i = 0; i < 40; i++) {
    std::string value = random.Text(random.Below(120));
    if (i == 13) value = random.Text(100 * 1024);
    if (i == 31) value = random.Bytes(20 * 1024);
    entries.emplace_back("file/" + Decimal(i, 4), value);
  }
  return entries;
}

// Lengths of keys, and of what they share with the key before, around where a varint grows a byte.
Entries LongKeys() {
  Entries entries;
  for (const size_t size : {127, 128, 16383, 16384}) {
    entries.emplace_back(std::string(size, 'k'), "a run of " + std::to_string(size));
    entries.emplace_back(std::string(size, 'k') + "~", std::string(size % 300, 'v'));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

Entries Reversed(Entries entries) {
  std::reverse(entries.begin(), entries.end());
  return entries;
}

// Stored keys of a database: values, deletions and several versions of a user key, with sequence
// numbers up to the greatest there is.
Entries Versions() {
  Random random(6);
  std::vector<std::string> user_keys = {"", std::string(1, '\x00'), "\xff", "\xff\xff"};
  for (int i = 0; i < 60; i++) user_keys.push_back("account/" + Decimal(i * 11, 5));
  user_keys.push_back("account/00011x");  // extends another key: tags must not leak into the order
  user_keys.push_back("account/00011\x01");
  Entries entries;
  for (size_t i = 0; i < user_keys.size(); i++) {
    for (uint64_t version = i % 5 == 4 ? 12 : i % 5; version-- > 0;) {
      const uint64_t sequence = 1 + version * 1000 + random.Below(1000);
      const bool deletion = random.Below(4) == 0;
      entries.emplace_back(InternalKey(user_keys[i], sequence, deletion ? kDeletion : kValue),
                           deletion ? "" : random.Text(random.Below(50)));
    }
  }
  entries.emplace_back(InternalKey("zenith", kMaxSequence, kValue), "the greatest sequence");
  entries.emplace_back(InternalKey("zenith", 0, kDeletion), "");
  const InternalKeyComparator order(leveldb::BytewiseComparator());
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return order.Compare(a.first, b.first) < 0;
  });
  return entries;
}

// ---- How a table is written -----------------------------------------------------------------

enum class Filter { kNone, kBloom, kOldSigned, kOldUnsigned };
enum class Order { kBytewise, kReverse };

struct Settings {
  size_t block_size = 4096;
  int restart_interval = 16;
  int bits_per_key = 0;  // 0: no filter
  leveldb::CompressionType compression = leveldb::kNoCompression;
  int flush_every = 0;  // Flush() after every so many entries; 0: never
  Filter filter = Filter::kBloom;
  bool internal = false;  // internal keys, as a database stores them
  Order order = Order::kBytewise;

  Filter EffectiveFilter() const { return bits_per_key == 0 ? Filter::kNone : filter; }
};

// The options that `settings` stand for, and ownership of what they point to.
class Setup {
 public:
  explicit Setup(const Settings& settings) {
    user_comparator = settings.order == Order::kReverse
                          ? static_cast<const leveldb::Comparator*>(&reverse_)
                          : leveldb::BytewiseComparator();
    switch (settings.EffectiveFilter()) {
      case Filter::kNone:
        break;
      case Filter::kBloom:
        user_policy.reset(leveldb::NewBloomFilterPolicy(settings.bits_per_key));
        break;
      case Filter::kOldSigned:
      case Filter::kOldUnsigned:
        user_policy.reset(new OldNameBloomPolicy(
            settings.bits_per_key, settings.EffectiveFilter() == Filter::kOldSigned));
        break;
    }
    options.block_size = settings.block_size;
    options.block_restart_interval = settings.restart_interval;
    options.compression = settings.compression;
    options.paranoid_checks = true;
    options.comparator = user_comparator;
    options.filter_policy = user_policy.get();
    if (settings.internal) {
      internal_comparator_.reset(new InternalKeyComparator(user_comparator));
      options.comparator = internal_comparator_.get();
      if (user_policy) {
        internal_policy_.reset(new InternalFilterPolicy(user_policy.get()));
        options.filter_policy = internal_policy_.get();
      }
    }
  }

  leveldb::Options options;
  const leveldb::Comparator* user_comparator;
  std::unique_ptr<const leveldb::FilterPolicy> user_policy;

 private:
  const ReverseBytewiseComparator reverse_;
  std::unique_ptr<const InternalKeyComparator> internal_comparator_;
  std::unique_ptr<const InternalFilterPolicy> internal_policy_;
};

std::string BuildTable(const Settings& settings, const Entries& entries) {
  const Setup setup(settings);
  StringSink sink;
  leveldb::TableBuilder builder(setup.options, &sink);
  int added = 0;
  for (const auto& [key, value] : entries) {
    builder.Add(key, value);
    added++;
    if (settings.flush_every != 0 && added % settings.flush_every == 0) {
      builder.Flush();
      builder.Flush();  // with nothing buffered: writes nothing, and starts no filter
    }
  }
  Check(builder.Finish(), "finish");
  Check(builder.FileSize() == sink.contents.size(), "the builder miscounted");
  return sink.contents;
}

Entries ReadTable(const Settings& settings, const std::string& table) {
  const Setup setup(settings);
  StringSource source(table);
  leveldb::Table* opened = nullptr;
  Check(leveldb::Table::Open(setup.options, &source, source.size(), &opened), "open");
  const std::unique_ptr<leveldb::Table> owned(opened);
  leveldb::ReadOptions verified;
  verified.verify_checksums = true;
  const std::unique_ptr<leveldb::Iterator> it(opened->NewIterator(verified));
  Entries entries;
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    entries.emplace_back(it->key().ToString(), it->value().ToString());
  }
  Check(it->status(), "iterate");
  return entries;
}

// ---- What is written out --------------------------------------------------------------------

class Output {
 public:
  explicit Output(std::string directory) : directory_(std::move(directory)) {
    manifest_ =
        "table\tentries\torigin\tkeys\tcomparator\tcompression\tblock_size\trestart_interval\t"
        "filter\tbits_per_key\tflush_every\n";
  }

  void WriteTo(const std::string& name, const std::string& contents) const {
    WriteFile(directory_ + "/" + name, contents);
  }

  // One list of entries, and a table of it for each of `variants`.
  void Tables(const std::string& list, const Entries& entries,
              const std::vector<Settings>& variants) {
    WriteTo(list + ".entries", EncodeEntries(entries));
    for (const Settings& settings : variants) {
      const std::string table = BuildTable(settings, entries);
      Check(ReadTable(settings, table) == entries, list + " does not read back");
      Add(Name(list, settings), list, "builder", settings, table);
    }
  }

  void Add(const std::string& name, const std::string& list, const std::string& origin,
           const Settings& s, const std::string& table) {
    static const char* const kFilters[] = {"none", "bloom", "old-signed", "old-unsigned"};
    Check(names_.insert(name).second, name + " is made twice");
    WriteTo(name, table);
    manifest_ += name + "\t" + list + ".entries\t" + origin + "\t" +
                 (s.internal ? "internal" : "user") + "\t" +
                 (s.order == Order::kReverse ? "reverse" : "bytewise") + "\t" +
                 (s.compression == leveldb::kSnappyCompression ? "snappy" : "none") + "\t" +
                 std::to_string(s.block_size) + "\t" + std::to_string(s.restart_interval) + "\t" +
                 kFilters[static_cast<int>(s.EffectiveFilter())] + "\t" +
                 std::to_string(s.bits_per_key) + "\t" + std::to_string(s.flush_every) + "\n";
  }

  void Finish() const { WriteTo("manifest.tsv", manifest_); }

 private:
  static std::string Name(const std::string& list, const Settings& s) {
    static const char* const kFilters[] = {"nofilter", "bloom", "oldsigned", "oldunsigned"};
    std::string name = list + "-b" + std::to_string(s.block_size) + "-r" +
                       std::to_string(s.restart_interval) + "-" +
                       kFilters[static_cast<int>(s.EffectiveFilter())];
    if (s.bits_per_key != 0) name += std::to_string(s.bits_per_key);
    if (s.flush_every != 0) name += "-flush" + std::to_string(s.flush_every);
    if (s.compression == leveldb::kSnappyCompression) name += "-snappy";
    return name + ".ldb";
  }

  const std::string directory_;
  std::string manifest_;
  std::set<std::string> names_;
};

// ---- Tables that a real database wrote ------------------------------------------------------

// A database in memory, and the answers it gave.
class Database {
 public:
  explicit Database(const Settings& settings)
      : settings_(settings),
        setup_(settings),
        env_(leveldb::NewMemEnv(leveldb::Env::Default())) {
    // The database wraps comparator and policy for internal keys itself.
    setup_.options.comparator = setup_.user_comparator;
    setup_.options.filter_policy = setup_.user_policy.get();
    setup_.options.env = env_.get();
    setup_.options.create_if_missing = true;
    Open();
  }

  ~Database() { Close(); }

  void Put(const std::string& key, const std::string& value) {
    Check(db_->Put(leveldb::WriteOptions(), key, value), "put");
    Wrote(key);
  }

  void Delete(const std::string& key) {
    Check(db_->Delete(leveldb::WriteOptions(), key), "delete");
    Wrote(key);
  }

  // Keeps what is visible now alive through compactions, and notes what the database answers for
  // every key it was ever told of, and for keys beside those.
  void HoldSnapshot() {
    leveldb::ReadOptions at;
    at.snapshot = db_->GetSnapshot();
    held_.push_back(at.snapshot);
    for (const std::string& known : known_) {
      for (const std::string& key : {known, known + '\x00'}) {
        std::string value;
        const leveldb::Status status = db_->Get(at, key, &value);
        if (!status.IsNotFound()) Check(status, "get");
        lookups_ += std::to_string(sequence_) + "\t" + Hex(key) + "\t" +
                    (status.ok() ? "found" : "absent") + "\t" + Hex(value) + "\n";
      }
    }
  }

  // Moves what was written so far out of the log into a table of level 0, versions and all.
  void Reopen() {
    Close();
    Open();
  }

  // Merges all tables into one. Versions that no held snapshot can see are dropped.
  void Compact() { db_->CompactRange(nullptr, nullptr); }

  // Writes the one table that the database consists of now.
  void Emit(const std::string& name, Output* output) {
    Close();
    std::vector<std::string> children, tables;
    Check(env_->GetChildren(kPath, &children), "list");
    for (const std::string& child : children) {
      if (child.size() > 4 && child.substr(child.size() - 4) == ".ldb") tables.push_back(child);
    }
    Check(tables.size() == 1, name + ": not one table but " + std::to_string(tables.size()));
    std::string table;
    Check(leveldb::ReadFileToString(env_.get(), kPath + ("/" + tables[0]), &table), "read");

    Settings stored = settings_;
    stored.internal = true;
    const Entries entries = ReadTable(stored, table);
    // Proof that this program's comparator and filter wrapper are the library's.
    Check(BuildTable(stored, entries) == table, name + " cannot be rebuilt");
    uint64_t newest = 0;
    for (const Entry& entry : entries) newest = std::max(newest, Tag(entry.first) >> 8);
    Check(newest == sequence_, name + ": sequence numbers were miscounted");

    output->WriteTo(name + ".entries", EncodeEntries(entries));
    output->WriteTo(name + ".lookups.tsv", "sequence\tuser_key\tanswer\tvalue\n" + lookups_);
    output->Add(name + ".ldb", name, "database", stored, table);
  }

 private:
  static constexpr const char* kPath = "/db";

  void Open() { Check(leveldb::DB::Open(setup_.options, kPath, &db_), "open database"); }

  void Close() {
    if (db_ == nullptr) return;
    for (const leveldb::Snapshot* snapshot : held_) db_->ReleaseSnapshot(snapshot);
    held_.clear();
    delete db_;
    db_ = nullptr;
  }

  void Wrote(const std::string& key) {
    sequence_++;  // one for each operation, from 1
    known_.insert(key);
  }

  const Settings settings_;
  Setup setup_;
  const std::unique_ptr<leveldb::Env> env_;
  leveldb::DB* db_ = nullptr;
  uint64_t sequence_ = 0;
  std::set<std::string> known_;
  std::vector<const leveldb::Snapshot*> held_;
  std::string lookups_;
};

// Overwrites and deletes among a hundred or so user keys, the empty one and 0xff ones included.
void Churn(Random* random, int operations, Database* db) {
  for (int i = 0; i < operations; i++) {
    const uint64_t n = random->Below(100);
    std::string key = "player/" + Decimal(n * n, 5);
    if (n < 4) key = std::string(n, '\xff');
    if (random->Below(5) == 0) {
      db->Delete(key);
    } else {
      db->Put(key, random->Text(random->Below(80)));
    }
  }
}

void DatabaseTables(Output* output) {
  const auto kNone = leveldb::kNoCompression;
  const auto kSnappy = leveldb::kSnappyCompression;

  // Every version ever written: a recovered log goes into a table as it is.
  for (const auto compression : {kNone, kSnappy}) {
    Settings settings{.block_size = 1024, .bits_per_key = 10, .compression = compression};
    Database db(settings);
    Random random(compression == kNone ? 7 : 8);
    for (int phase = 0; phase < 3; phase++) {
      Churn(&random, 120, &db);
      db.HoldSnapshot();
    }
    db.Reopen();
    db.Emit(compression == kNone ? "db-log" : "db-log-snappy", output);
  }

  // A merge of two tables, keeping what three snapshots see.
  struct Compacted {
    const char* name;
    Settings settings;
  };
  const Compacted compacted[] = {
      {"db-compacted", {.block_size = 4096, .bits_per_key = 10}},
      {"db-compacted-snappy",
       {.block_size = 1024, .restart_interval = 4, .bits_per_key = 16, .compression = kSnappy}},
      {"db-compacted-nofilter", {.block_size = 1024, .restart_interval = 1}},
      {"db-compacted-reverse",
       {.block_size = 1024, .bits_per_key = 10, .order = Order::kReverse}},
      {"db-compacted-oldsigned",
       {.block_size = 1024, .bits_per_key = 10, .filter = Filter::kOldSigned}},
  };
  uint64_t seed = 10;
  for (const auto& [name, settings] : compacted) {
    Database db(settings);
    Random random(seed++);
    Churn(&random, 150, &db);
    db.Reopen();
    for (int phase = 0; phase < 3; phase++) {
      Churn(&random, 100, &db);
      db.HoldSnapshot();
    }
    db.Compact();
    db.Emit(name, output);
  }

  // A table that hides what lies below it and holds no value at all.
  {
    Database db({.bits_per_key = 10});
    for (int i = 0; i < 50; i++) db.Delete("gone/" + Decimal(i, 3));
    db.HoldSnapshot();
    db.Reopen();
    db.Emit("db-deletions", output);
  }
}

// ---- Filters by themselves ------------------------------------------------------------------

void BloomVectors(const Output& output) {
  Random random(9);
  std::vector<std::vector<std::string>> sets = {{}, {""}, {"hello", "world"}, {"twice", "twice"}};
  // Each length up to two words; all bytes high, where reading them as signed would show.
  std::vector<std::string> lengths;
  for (size_t size = 0; size <= 8; size++) {
    sets.push_back({std::string(size, '\xff')});
    sets.push_back({std::string("\x80\xfe\x81\x90\xa0\xc3\xbf\xf0").substr(0, size)});
    lengths.push_back(sets.back()[0]);
  }
  sets.push_back(lengths);
  for (const size_t count : {7, 100}) {
    std::vector<std::string> keys;
    for (size_t i = 0; i < count; i++) keys.push_back(random.Bytes(random.Below(20)));
    sets.push_back(keys);
    keys.clear();
    for (size_t i = 0; i < count; i++) keys.push_back(Decimal(i * 3, 16));
    sets.push_back(keys);
  }

  std::string vectors = "bits_per_key\tkeys\tkeys_in_hex\tfilter\n";
  std::string verdicts = "filter\tkey\tmay_match\n";
  const auto judge = [&](const leveldb::FilterPolicy& policy, const std::string& filter,
                         const std::string& key) {
    verdicts += Hex(filter) + "\t" + Hex(key) + "\t" +
                (policy.KeyMayMatch(key, filter) ? "yes" : "no") + "\n";
  };

  for (const int bits : {1, 2, 5, 10, 16, 30, 43, 44, 100}) {
    const std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(bits));
    const OldNameBloomPolicy unsigned_tail(bits, false);
    for (const std::vector<std::string>& keys : sets) {
      const std::vector<leveldb::Slice> slices(keys.begin(), keys.end());
      const int n = static_cast<int>(slices.size());
      std::string filter, same;
      policy->CreateFilter(slices.data(), n, &filter);
      vectors += std::to_string(bits) + "\t" + std::to_string(n) + "\t";
      for (size_t i = 0; i < keys.size(); i++) vectors += (i == 0 ? "" : ",") + Hex(keys[i]);
      vectors += "\t" + Hex(filter) + "\n";

      // So that this program's own hash differs from LevelDB's in the sign alone, where it differs.
      unsigned_tail.CreateFilter(slices.data(), n, &same);
      Check(same == filter, "the reimplemented filter differs");

      // Verdicts on absent keys, false positives included, for filters short enough to list.
      if (n >= 2 && filter.size() < 30) {
        for (int probe = 0; probe < 8; probe++) judge(*policy, filter, random.Bytes(probe));
      }
    }
  }

  // Filters that no builder makes: nothing at all, no bits, no probes, the most probes there are,
  // and counts of probes that are reserved for later encodings.
  const std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(10));
  const std::string odd_sized = random.Bytes(13);
  for (const std::string& key : {std::string(), std::string("key"), std::string("\xff\xff\xff")}) {
    for (const std::string& filter :
         {std::string(), std::string("\x06"), std::string("\xff"), std::string("\x00\x00", 2),
          std::string("\xff\x06"), std::string("\x00\x06", 2), std::string("\xff\x1e"),
          std::string("\x00\x1f", 2), std::string("\x00\x80", 2), std::string("\x00\xff", 2),
          odd_sized + '\x01', odd_sized + '\x02', odd_sized + '\x1e', odd_sized + '\x1f'}) {
      judge(*policy, filter, key);
    }
  }
  output.WriteTo("bloom.tsv", vectors);
  output.WriteTo("bloom_verdicts.tsv", verdicts);
}

// ---- All of it ------------------------------------------------------------------------------

void Generate(const std::string& directory) {
  const auto kSnappy = leveldb::kSnappyCompression;
  Output output(directory);

  const std::vector<Settings> few = {
      {.bits_per_key = 0}, {.bits_per_key = 10}, {.bits_per_key = 10, .compression = kSnappy}};
  output.Tables("empty", {}, few);
  output.Tables("empty-key", {{"", "the value of the empty key"}}, few);
  output.Tables("empty-values", EmptyValues(),
                {{.bits_per_key = 10},
                 {.block_size = 64},
                 {.bits_per_key = 10, .compression = kSnappy}});

  const Entries words = Words();
  output.Tables(
      "words", words,
      {// One entry a block; then blocks and restarts from the smallest to one for the whole table.
       {.block_size = 1, .restart_interval = 1, .bits_per_key = 10},
       {.block_size = 64, .restart_interval = 1},
       {.block_size = 64, .restart_interval = 2, .bits_per_key = 10},
       {.block_size = 256, .restart_interval = 3, .bits_per_key = 1},
       {.block_size = 1024, .bits_per_key = 10},
       {.block_size = 2048, .restart_interval = 5, .bits_per_key = 5},
       {.bits_per_key = 0},
       {.bits_per_key = 10},
       {.bits_per_key = 30},
       {.restart_interval = 1, .bits_per_key = 10},
       {.block_size = 65536, .bits_per_key = 10},
       {.block_size = 65536, .restart_interval = 1000, .bits_per_key = 10},
       {.restart_interval = 2, .flush_every = 50},
       {.bits_per_key = 10, .flush_every = 7},
       {.block_size = 64, .restart_interval = 1, .bits_per_key = 10, .compression = kSnappy},
       {.block_size = 1024, .restart_interval = 2, .compression = kSnappy},
       {.bits_per_key = 10, .compression = kSnappy},
       {.bits_per_key = 10, .compression = kSnappy, .flush_every = 7},
       {.block_size = 65536, .bits_per_key = 10, .compression = kSnappy},
       {.bits_per_key = 10, .filter = Filter::kOldSigned},
       {.bits_per_key = 10, .compression = kSnappy, .filter = Filter::kOldUnsigned}});

  output.Tables("decimals", Decimals(),
                {{.bits_per_key = 10},
                 {.block_size = 2048, .restart_interval = 4, .bits_per_key = 16},
                 {.bits_per_key = 10, .compression = kSnappy}});
  output.Tables("random", RandomBytes(),
                {{.block_size = 64, .restart_interval = 2, .bits_per_key = 10},
                 {.block_size = 512},
                 {.bits_per_key = 10},
                 {.bits_per_key = 10, .compression = kSnappy},
                 {.block_size = 256, .bits_per_key = 10, .filter = Filter::kOldSigned},
                 {.block_size = 256, .bits_per_key = 10, .filter = Filter::kOldUnsigned}});
  output.Tables("prefixes", Prefixes(),
                {{.block_size = 64, .bits_per_key = 10},
                 {.bits_per_key = 0},
                 {.restart_interval = 1, .bits_per_key = 10},
                 {.block_size = 1024, .bits_per_key = 10, .compression = kSnappy}});

  const Entries extremes = Extremes();
  output.Tables("extremes", extremes,
                {{.block_size = 1, .restart_interval = 1, .bits_per_key = 10},
                 {.block_size = 64, .restart_interval = 3},
                 {.bits_per_key = 10},
                 {.block_size = 256, .bits_per_key = 10, .compression = kSnappy},
                 {.block_size = 256, .bits_per_key = 10, .filter = Filter::kOldSigned}});
  output.Tables("large", Large(),
                {{.bits_per_key = 10},
                 {.block_size = 65536},
                 {.bits_per_key = 10, .compression = kSnappy}});
  output.Tables("long-keys", LongKeys(),
                {{.bits_per_key = 10}, {.bits_per_key = 10, .compression = kSnappy}});

  const std::vector<Settings> reverse = {
      {.block_size = 1, .restart_interval = 1, .bits_per_key = 10, .order = Order::kReverse},
      {.block_size = 64, .restart_interval = 2, .order = Order::kReverse},
      {.bits_per_key = 10, .order = Order::kReverse},
      {.block_size = 1024, .bits_per_key = 10, .compression = kSnappy, .order = Order::kReverse}};
  output.Tables("words-reverse", Reversed(words), reverse);
  output.Tables("extremes-reverse", Reversed(extremes), reverse);

  output.Tables("versions", Versions(),
                {{.block_size = 1, .restart_interval = 1, .bits_per_key = 10, .internal = true},
                 {.block_size = 64, .restart_interval = 2, .bits_per_key = 10, .internal = true},
                 {.block_size = 512, .internal = true},
                 {.bits_per_key = 10, .internal = true},
                 {.block_size = 512, .bits_per_key = 10, .compression = kSnappy, .internal = true},
                 {.bits_per_key = 10, .filter = Filter::kOldUnsigned, .internal = true}});
  DatabaseTables(&output);

  BloomVectors(output);
  output.Finish();
}

}  // namespace
}  // namespace leveltable

int main(int argc, char** argv) {
  try {
    leveltable::Check(argc == 2, "usage: generate DIRECTORY");
    leveltable::Generate(argv[1]);
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 1;
  }
}
