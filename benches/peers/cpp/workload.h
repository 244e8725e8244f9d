// What the C++ peers share: the workload's files, the clock, the checksum of answers. The counterpart
// of src/workload.rs, which says what the files hold; the two must agree.

#ifndef LEVELTABLE_BENCHES_PEERS_WORKLOAD_H_
#define LEVELTABLE_BENCHES_PEERS_WORKLOAD_H_

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace peers {

constexpr size_t kKeyLen = 16;
constexpr size_t kValueLen = 100;
constexpr size_t kSeekSteps = 10;
constexpr size_t kBatch = 256;
constexpr size_t kFew = 16;
constexpr int kThreads = 2;
constexpr int kBloomBits = 10;
constexpr size_t kCacheBytes = size_t{2} << 30;

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string bytes(file ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(&bytes[0], static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot read " + path);
  return bytes;
}

// Keys end to end, all of one length.
class Keys {
 public:
  explicit Keys(const std::string& path) : bytes_(ReadFile(path)) {}

  size_t size() const { return bytes_.size() / kKeyLen; }
  const char* operator[](size_t i) const { return bytes_.data() + i * kKeyLen; }

 private:
  const std::string bytes_;
};

// Values end to end; entry i has value i modulo their number.
class Values {
 public:
  explicit Values(const std::string& path) : bytes_(ReadFile(path)) {}

  const char* operator[](size_t i) const {
    return bytes_.data() + i * kValueLen % bytes_.size();
  }

  // In place of a modulo for each entry: the value after `value`, in a circle.
  const char* First() const { return bytes_.data(); }
  const char* After(const char* value) const {
    value += kValueLen;
    return value == bytes_.data() + bytes_.size() ? bytes_.data() : value;
  }

 private:
  const std::string bytes_;
};

// What was found, and in which order.
struct Answers {
  uint64_t checksum = 0;
  uint64_t count = 0;

  void Value(const char* value) { Add(Load(value)); }
  void Entry(const char* key, const char* value) { Add(Load(key + kKeyLen - 8) ^ Load(value)); }
  void Add(const Answers& other) {
    checksum += other.checksum;
    count += other.count;
  }

 private:
  static uint64_t Load(const char* bytes) {
    uint64_t word;  // little-endian machines only, like LevelDB's fast paths
    std::memcpy(&word, bytes, sizeof word);
    return word;
  }
  void Add(uint64_t word) {
    checksum = (checksum << 1 | checksum >> 63) + word;
    ++count;
  }
};

// Entries from either end, all or at most `limit`. RocksDB's iterators have LevelDB's functions.
template <typename Iterator>
Answers ScanAll(Iterator* it, bool forward, size_t limit = SIZE_MAX) {
  Answers answers;
  if (forward) {
    for (it->SeekToFirst(); it->Valid() && answers.count < limit; it->Next()) {
      answers.Entry(it->key().data(), it->value().data());
    }
  } else {
    for (it->SeekToLast(); it->Valid() && answers.count < limit; it->Prev()) {
      answers.Entry(it->key().data(), it->value().data());
    }
  }
  return answers;
}

// A few entries from each of `starts` on.
template <typename Slice, typename Iterator>
Answers SeekEach(Iterator* it, const Keys& starts) {
  Answers answers;
  for (size_t i = 0; i < starts.size(); i++) {
    it->Seek(Slice(starts[i], kKeyLen));
    for (size_t step = 0; step < kSeekSteps && it->Valid(); step++, it->Next()) {
      answers.Entry(it->key().data(), it->value().data());
    }
  }
  return answers;
}

// Nanoseconds of processor time of the calling thread. Nothing here waits for anything, so on an idle
// machine it is the time that passes; on a busy one, other programs' time stays out.
inline double ProcessorTime() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

inline double WallTime() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::nano>(now).count();
}

// Size of a file, or of all files in a directory.
inline double FileBytes(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) {
    return static_cast<double>(std::filesystem::file_size(path));
  }
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) bytes += FileBytes(entry);
  return bytes;
}

inline void Report(double measured, const Answers& answers, double disk_bytes = 0) {
  std::printf("%.3f %016llx %llu %.3f\n", measured,
              static_cast<unsigned long long>(answers.checksum),
              static_cast<unsigned long long>(answers.count), disk_bytes);
}

// One pass to warm up, then one that is timed, in nanoseconds for each of `operations`.
template <typename Pass>
void TimeSecondPass(size_t operations, Pass pass) {
  pass();
  const double start = ProcessorTime();
  const Answers answers = pass();
  Report((ProcessorTime() - start) / static_cast<double>(operations), answers);
}

// One pass, with the files it writes at `path`, which are removed before it: elapsed nanoseconds for each of
// `operations`, since libraries write and sync in threads of their own, and the size of the files.
template <typename Pass>
void TimeWriting(size_t operations, const std::string& path, Pass pass) {
  std::filesystem::remove_all(path);
  const double start = WallTime();
  pass();
  const double took = WallTime() - start;
  Answers answers;
  answers.count = operations;
  Report(took / static_cast<double>(operations), answers, FileBytes(path));
  std::filesystem::remove_all(path);
}

// Drops a file that was synced, or all files of a directory, from the page cache.
inline void DropPages(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) DropPages(entry.path());
    return;
  }
  const int file = open(path.c_str(), O_RDONLY);
  const bool dropped = file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0;
  if (file >= 0) close(file);
  if (!dropped) throw std::runtime_error("cannot drop the pages of " + path);
}

// Bytes that this process has read from disk so far, or 0 if the system does not count them.
inline double DiskBytes() {
  std::ifstream io("/proc/self/io");
  std::string name;
  double bytes;
  while (io >> name >> bytes) {
    if (name == "read_bytes:") return bytes;
  }
  return 0;
}

// Nanoseconds that this process, of one thread, has been ready to run but had no processor, or 0 if the
// system does not count them.
inline double WaitedForProcessor() {
  std::ifstream counts("/proc/self/schedstat");
  double ran, waited;
  return counts >> ran >> waited ? waited : 0;
}

// Sums of what passes take while nothing of the file is in the page cache at their start. A pass waits
// for the disk, so the time is what the ordinary clock shows, less the time in which other programs kept
// the processors busy.
class Cold {
 public:
  template <typename Work>
  void Time(size_t operations, Work work) {
    const double bytes = DiskBytes();
    const double waited = WaitedForProcessor();
    const double start = WallTime();
    const double ran_before = ProcessorTime();
    work();
    const double ran = ProcessorTime() - ran_before;
    const double elapsed = WallTime() - start;
    // Some of the waiting may have been before `start` or after the end.
    const double idle = std::max(elapsed - ran, 0.0);
    nanoseconds_ += elapsed - std::min(WaitedForProcessor() - waited, idle);
    bytes_ += DiskBytes() - bytes;
    operations_ += static_cast<double>(operations);
  }

  void Report(const Answers& answers) const {
    peers::Report(nanoseconds_ / operations_, answers, bytes_ / operations_);
  }

 private:
  double nanoseconds_ = 0;
  double bytes_ = 0;
  double operations_ = 0;
};

// How much more two threads get done than one in the same time. `pass(first)` goes over all probes,
// from number `first` on and around.
template <typename Pass>
void TimeThreads(size_t probes, Pass pass) {
  pass(0);
  double start = WallTime();
  pass(0);
  const double alone = WallTime() - start;
  Answers answers[kThreads];
  std::thread threads[kThreads];
  start = WallTime();
  for (int t = 0; t < kThreads; t++) {
    threads[t] = std::thread([&, t] { answers[t] = pass(probes / kThreads * t); });
  }
  for (auto& thread : threads) thread.join();
  const double together = WallTime() - start;
  for (int t = 1; t < kThreads; t++) answers[0].Add(answers[t]);
  Report(alone * kThreads / together, answers[0]);
}

// Mean time of `open(&opened)` in nanoseconds; what it opened is destroyed outside of the measurement.
template <typename Opened, typename Open>
void TimeOpen(Open open) {
  Opened opened;
  open(&opened);
  double total = 0;
  int openings = 0;
  for (; openings < 10 || total < 2e8; openings++) {
    opened.reset();
    const double start = ProcessorTime();
    open(&opened);
    total += ProcessorTime() - start;
  }
  Report(total / openings, Answers());
}

// Bytes on the heap that what `open` makes holds.
template <typename Opened, typename Open>
void MeasureMemory(Open open) {
  const auto heap_bytes = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  Opened opened;
  const double before = heap_bytes();
  open(&opened);
  Report(heap_bytes() - before, Answers());
}

// The command line: DIRECTORY WORK TABLE PROBES [OPENING]; none prints the library's version.
struct Command {
  const std::string directory, work, table, probes, opening;

  std::string Path(const std::string& name) const { return directory + "/" + name; }
};

template <typename Run>
int Main(int argc, char** argv, const std::string& version, Run run) {
  try {
    if (argc == 1) {
      std::puts(version.c_str());
      return 0;
    }
    if (argc != 5 && argc != 6) {
      throw std::runtime_error("usage: peer DIRECTORY WORK TABLE PROBES [OPENING]");
    }
    run(Command{argv[1], argv[2], argv[3], argv[4], argc == 6 ? argv[5] : "tuned"});
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

}  // namespace peers

#endif  // LEVELTABLE_BENCHES_PEERS_WORKLOAD_H_
