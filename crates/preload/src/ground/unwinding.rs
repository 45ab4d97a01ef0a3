//! Unwinding. Panics abort, so nothing here is ever unwound by a panic; what walks over the library's frames is the cancellation of a
//! thread, or an exception of the program's in a handler.
//!
//! The standard library asks `libgcc_s` about such a walk. These answers take its place, for to load it costs every program a tenth of
//! a millisecond at its start: no frame of the library has anything to be told of the walk, and who walks goes on to the next one.

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
    // No data of the language's: the frame has no handler, whatever else is asked.
    "_Unwind_GetLanguageSpecificData" => "0";
    "_Unwind_GetIP" => "0";
    "_Unwind_GetIPInfo" => "0";
    "_Unwind_GetRegionStart" => "0";
    "_Unwind_GetTextRelBase" => "0";
    "_Unwind_GetDataRelBase" => "0";
    "_Unwind_SetGR" => "0";
    "_Unwind_SetIP" => "0";
    // The end of the stack: a panic is told without the calls that led to it.
    "_Unwind_Backtrace" => "5";
}

// Only a handler would go on with the walk.
core::arch::global_asm!(
    ".globl _Unwind_Resume",
    ".hidden _Unwind_Resume",
    ".type _Unwind_Resume, @function",
    "_Unwind_Resume:",
    "ud2",
);
