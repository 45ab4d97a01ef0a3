//! Unwinding. Panics abort, so no panic unwinds anything here. The library's frames are unwound by the cancellation of
//! a thread, or by an exception that a handler of the program throws.
//!
//! The standard library calls `libgcc_s` during such an unwinding. These definitions take its place, because loading it
//! costs every program a tenth of a millisecond at its start. No frame of the library has a handler, so the unwinder
//! goes on to the next frame.

/// Defines functions that return a constant.
macro_rules! answer {
    ($($name:literal => $value:literal;)*) => {
        core::arch::global_asm!($(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            concat!("mov eax, ", $value),
            "ret",
        )*);
    };
}

answer! {
    // No language-specific data: the frame has no handler, whatever else is asked.
    "_Unwind_GetLanguageSpecificData" => "0";
    "_Unwind_GetIP" => "0";
    "_Unwind_GetIPInfo" => "0";
    "_Unwind_GetRegionStart" => "0";
    "_Unwind_GetTextRelBase" => "0";
    "_Unwind_GetDataRelBase" => "0";
    "_Unwind_SetGR" => "0";
    "_Unwind_SetIP" => "0";
    // The end of the stack: a panic is reported without a backtrace.
    "_Unwind_Backtrace" => "5";
}

// Only a handler would resume the unwinding.
core::arch::global_asm!(
    ".globl _Unwind_Resume",
    ".hidden _Unwind_Resume",
    ".type _Unwind_Resume, @function",
    "_Unwind_Resume:",
    "ud2",
);
