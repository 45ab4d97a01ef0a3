//! The number of the calling thread, which every lock needs.

#[cfg(not(target_arch = "x86_64"))]
use portable as cached;
#[cfg(target_arch = "x86_64")]
use x86_64 as cached;

/// Number of the calling thread, cached so that the kernel is asked once.
#[inline]
pub fn number() -> u32 {
    match cached::get() {
        0 => ask(),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn ask() -> u32 {
    let number = crate::ground::sys::thread();
    cached::set(number);
    number
}

/// Forgets the cached number: a forked child has another one.
pub fn forget() {
    cached::set(0);
}

/// A thread-local word at an offset that the dynamic linker fixes when the library is loaded ("initial exec"): two
/// instructions. For a `thread_local` of a library the compiler calls a function of the dynamic linker, because the
/// library might be loaded later; a word of four bytes finds room even then.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.netchannel_thread,\"awT\",@nobits",
        ".p2align 2",
        ".globl netchannel_thread",
        ".hidden netchannel_thread",
        ".type netchannel_thread, @object",
        ".size netchannel_thread, 4",
        "netchannel_thread:",
        ".zero 4",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> u32 {
        let word: u32;
        // SAFETY: reads the thread's own word, which every thread has.
        unsafe {
            asm!(
                "mov {word:r}, qword ptr [rip + netchannel_thread@GOTTPOFF]",
                "mov {word:e}, dword ptr fs:[{word:r}]",
                word = out(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
        word
    }

    pub fn set(word: u32) {
        // SAFETY: writes the thread's own word, to which no reference exists.
        unsafe {
            asm!(
                "mov {place}, qword ptr [rip + netchannel_thread@GOTTPOFF]",
                "mov dword ptr fs:[{place}], {word:e}",
                place = out(reg) _,
                word = in(reg) word,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use core::cell::Cell;

    thread_local! {
        static THREAD: Cell<u32> = const { Cell::new(0) };
    }

    #[inline]
    pub fn get() -> u32 {
        THREAD.get()
    }

    pub fn set(word: u32) {
        THREAD.set(word);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_number() {
        let own = super::number();
        assert_eq!(own, crate::ground::sys::thread());
        assert_eq!(own, super::number());
        let other = std::thread::spawn(|| (super::number(), crate::ground::sys::thread()));
        let (other, asked) = other.join().unwrap();
        assert_eq!(other, asked);
        assert_ne!(own, other);
        super::forget();
        assert_eq!(own, super::number());
    }
}
