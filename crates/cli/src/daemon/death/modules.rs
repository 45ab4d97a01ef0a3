//! Which file an address is of, and where in it: what `addr2line` asks for.

use super::line::Line;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write;
use std::ops::Range;

/// The limit of callers that are shown.
const MOST_CALLERS: usize = 6;

/// Code of the program or of a library.
struct Module {
    name: String,
    base: usize,
    code: Range<usize>,
}

/// All that is loaded; the program itself is first.
pub struct Modules(Vec<Module>);

impl Modules {
    /// The present modules. Libraries that are loaded later are not known.
    pub fn loaded() -> Self {
        let mut found = Vec::new();
        // SAFETY: the function is called with what is passed, before this returns.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
        Self(found)
    }

    /// Writes file and offset, or the bare address.
    pub fn show(&self, address: usize, line: &mut Line) {
        let is_within = |module: &&Module| module.code.contains(&address);
        let _ = match self.0.iter().find(is_within) {
            Some(module) => write!(line, "{}+{:#x}", module.name, address - module.base),
            None => write!(line, "{address:#x}"),
        };
    }

    /// Writes which of the words of a stack may be addresses to return to in the program: it may show one that has returned, and none
    /// where the stack is deep in a library.
    pub fn show_callers(&self, words: &[usize], line: &mut Line) {
        let Some(program) = self.0.first() else {
            return;
        };
        let callers = words.iter().filter(|word| program.code.contains(word));
        for (index, caller) in callers.take(MOST_CALLERS).enumerate() {
            let before = if index == 0 { "; called from" } else { "," };
            let _ = write!(line, "{before} +{:#x}", caller - program.base);
        }
    }
}

extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the linker passes a description, whose headers and name live as long as the module, and what `loaded` passed.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Module>>()) };
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let is_code = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
    };
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
    let name = match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "netchannel".to_owned(),
    };
    let word = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let base = word(info.dlpi_addr);
    found.extend(headers.iter().filter(is_code).map(|header| {
        let start = base.saturating_add(word(header.p_vaddr));
        Module {
            name: name.clone(),
            base,
            code: start..start.saturating_add(word(header.p_memsz)),
        }
    }));
    0
}
