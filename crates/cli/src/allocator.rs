//! What memory is allocated with: the C library's allocator kept to one heap, or jemalloc, kept to
//! one as well, in place of musl's. Figures: `docs/design/0028-packages.md`.
//!
//! All threads share one heap that keeps freed memory: returning pages to the system and mapping
//! them again for the next buffer takes longer than filling it. By default each thread has a heap
//! of its own, and memory that another thread frees is stranded in it.

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads before anything is allocated. Freed pages are returned after a tenth of a
/// second: that is longer than a buffer needs to come round again. Threads keep only small pieces
/// for themselves.
#[cfg(target_env = "musl")]
#[unsafe(export_name = "_rjem_malloc_conf")]
// SAFETY of the name: no other part of the program has it; it is a pointer to text that ends with 0.
static SETTINGS: Settings =
    Settings(c"narenas:1,tcache_max:4096,dirty_decay_ms:100,muzzy_decay_ms:0".as_ptr());

#[cfg(target_env = "musl")]
#[repr(transparent)]
struct Settings(*const std::ffi::c_char);

#[cfg(target_env = "musl")]
// SAFETY: it points to text that never changes.
unsafe impl Sync for Settings {}

/// Keeps to one heap. A backup allocates its largest buffers outside of it, where they would leave
/// holes, and reuses them itself. What that saves: `docs/design/0002-dependencies.md`.
#[cfg(target_env = "gnu")]
pub fn keep_one_heap(in_backup: bool) {
    // A verification reads whole objects, which are longer.
    let (largest, kept) = if in_backup { (2 << 20, 4 << 20) } else { (8 << 20, 32 << 20) };
    // SAFETY: the function takes two numbers, no pointer, and is called before there is a second
    // thread. Its result does not matter: if it fails, the defaults stay.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, largest);
        libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
    }
}

/// jemalloc has read its settings already.
#[cfg(not(target_env = "gnu"))]
pub fn keep_one_heap(_in_backup: bool) {}
