/* Wine 8 lacks bcryptprimitives.dll, from which Rust's standard library takes random bytes. This one takes them from advapi32. It belongs
 * to the tests, and never to a release. */
#include <stddef.h>

unsigned char __stdcall SystemFunction036(void *bytes, unsigned long count);

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *bytes, size_t count) { return SystemFunction036(bytes, (unsigned long)count); }
