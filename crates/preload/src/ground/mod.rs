//! The base of all other modules: system calls, the functions behind the hooks, the clock, the heap, locks, threads.
//! Nothing here knows a socket.

pub mod addresses;
pub mod cancel;
pub mod clock;
pub mod complaint;
pub mod environment;
pub mod error;
pub mod gate;
pub mod heap;
#[cfg(all(not(test), target_arch = "x86_64"))]
pub mod lazy_binding;
pub mod lock;
pub mod mappings;
pub mod older;
pub mod process;
pub mod real;
pub mod sys;
pub mod thread;
#[cfg(all(not(test), target_arch = "x86_64"))]
pub mod unwinding;
