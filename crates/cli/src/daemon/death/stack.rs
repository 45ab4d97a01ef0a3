//! The state of the processor at a signal.

use std::os::raw::c_int;

/// The number of words of the stack that are examined.
pub const WORDS: usize = 512;

/// The instruction, and the top of the stack.
pub fn registers(context: &libc::ucontext_t) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    let (instruction, stack) = {
        let registers = &context.uc_mcontext.gregs;
        let word = |register: c_int| {
            let register = usize::try_from(register).unwrap_or(usize::MAX);
            registers
                .get(register)
                .map_or(0, |word| word.cast_unsigned())
        };
        (word(libc::REG_RIP), word(libc::REG_RSP))
    };
    #[cfg(target_arch = "aarch64")]
    let (instruction, stack) = (context.uc_mcontext.pc, context.uc_mcontext.sp);
    let word = |value: u64| usize::try_from(value).unwrap_or(0);
    (word(instruction), word(stack))
}

/// Copies words from the stack on. The kernel does it, and stops where there is no memory.
pub fn words(stack: usize, to: &mut [usize; WORDS]) -> &[usize] {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string; the kernel writes at most the size of the buffer; an unknown descriptor is an error.
    let read = unsafe {
        let memory: c_int = libc::open(c"/proc/self/mem".as_ptr(), flags);
        let offset = libc::off_t::try_from(stack).unwrap_or(0);
        let read = libc::pread(memory, to.as_mut_ptr().cast(), size_of_val(to), offset);
        libc::close(memory);
        read
    };
    let count = usize::try_from(read).unwrap_or(0) / size_of::<usize>();
    to.get(..count).unwrap_or_default()
}
