// C++'s `new` and `delete` on mimalloc, for RocksDB, which asks for nearly all of its memory this way.
//
// Not `malloc` and `free` too, which the library could take over as well: then memory that the dynamic linker drew before
// the program began would be given back to an allocator that never saw it, and a preloaded library (libfaketime, in the
// tests) ends the process before `main`.

#include <cstddef>
#include <new>

extern "C" {
void *mi_new(std::size_t size);
void *mi_new_nothrow(std::size_t size);
void *mi_new_aligned(std::size_t size, std::size_t alignment);
void *mi_new_aligned_nothrow(std::size_t size, std::size_t alignment);
void mi_free(void *memory);
}

void *operator new(std::size_t size) { return mi_new(size); }
void *operator new[](std::size_t size) { return mi_new(size); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return mi_new_nothrow(size); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return mi_new_nothrow(size); }

void operator delete(void *memory) noexcept { mi_free(memory); }
void operator delete[](void *memory) noexcept { mi_free(memory); }
void operator delete(void *memory, std::size_t) noexcept { mi_free(memory); }
void operator delete[](void *memory, std::size_t) noexcept { mi_free(memory); }
void operator delete(void *memory, const std::nothrow_t &) noexcept { mi_free(memory); }
void operator delete[](void *memory, const std::nothrow_t &) noexcept { mi_free(memory); }

void *operator new(std::size_t size, std::align_val_t alignment) {
  return mi_new_aligned(size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment) {
  return mi_new_aligned(size, static_cast<std::size_t>(alignment));
}
void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return mi_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return mi_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}

void operator delete(void *memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void *memory, std::size_t, std::align_val_t) noexcept { mi_free(memory); }
void operator delete(void *memory, std::align_val_t, const std::nothrow_t &) noexcept { mi_free(memory); }
void operator delete[](void *memory, std::align_val_t, const std::nothrow_t &) noexcept { mi_free(memory); }
